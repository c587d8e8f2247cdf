//! Processes selected by PID.

use std::os::fd::OwnedFd;
use std::thread;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::{Errno, retry_on_intr};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use tokio::sync::oneshot;

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
        let (sender, receiver) = oneshot::channel();
        // It may outlive the recording.
        thread::spawn(move || {
            let wait = |process: &OwnedFd| {
                let mut polled = [PollFd::new(process, PollFlags::IN)];
                retry_on_intr(|| poll(&mut polled, None)).is_ok()
            };
            if !self.0.is_empty() && self.0.iter().all(wait) {
                let _ = sender.send(());
            }
        });
        if receiver.await.is_err() {
            std::future::pending().await
        }
    }
}
