//! The clocks whose ticks run the sampling program: one per CPU for the whole host.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use crate::sys;

pub struct Events {
    by_cpu: Vec<(u32, OwnedFd)>,
}

impl Events {
    /// Opens and starts a clock on each CPU that is online.
    pub fn open(frequency: u64, program: BorrowedFd<'_>) -> io::Result<Self> {
        let mut by_cpu = Vec::new();
        for cpu in aya::util::online_cpus().map_err(|(path, error)| {
            io::Error::new(error.kind(), format!("cannot read {path}: {error}"))
        })? {
            let event = sys::open_cpu_clock(cpu, frequency)?;
            sys::attach_program(event.as_fd(), program)?;
            by_cpu.push((cpu, event));
        }
        for (_, event) in &by_cpu {
            sys::enable(event.as_fd())?;
        }
        Ok(Self { by_cpu })
    }

    /// No tick comes after this.
    pub fn stop(&self) {
        for (cpu, event) in &self.by_cpu {
            if let Err(error) = sys::disable(event.as_fd()) {
                tracing::debug!(cpu, %error, "the clock cannot be switched off");
            }
        }
    }
}
