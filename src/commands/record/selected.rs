//! Processes selected by PID.

use std::future::pending;
use std::os::fd::OwnedFd;

use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use crate::async_fd::async_fd;
use crate::commands::CommandError;

pub struct Selected(Vec<OwnedFd>);

impl Selected {
    pub fn new(pids: &[u32]) -> Result<Self, CommandError> {
        let open = |&number: &u32| {
            let pid = i32::try_from(number).ok().and_then(Pid::from_raw);
            let opened = pid.map_or(Err(Errno::SRCH), |pid| pidfd_open(pid, PidfdFlags::empty()));
            opened.map_err(|error| match error {
                Errno::SRCH => CommandError::Usage(format!("no process with PID {number}")),
                // That of a thread.
                Errno::INVAL => {
                    CommandError::Usage(format!("{number} is not the PID of a process"))
                }
                error => CommandError::Runtime(format!("process {number}: {error}")),
            })
        };
        pids.iter().map(open).collect::<Result<_, _>>().map(Self)
    }

    /// Waits until all have exited; forever if there are none.
    pub async fn exited(self) {
        if self.0.is_empty() {
            return pending().await;
        }
        for process in self.0 {
            // The descriptor is readable once the process has exited, even before its parent has waited for it.
            let has_exited = match async_fd(process) {
                Ok(process) => process.readable().await.is_ok(),
                Err(_) => false,
            };
            if !has_exited {
                return pending().await;
            }
        }
    }
}
