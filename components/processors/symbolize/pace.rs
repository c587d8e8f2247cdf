//! Limits the CPU usage of a worker.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use profcol_reader::cpu_time;

/// Work between two pauses.
pub(super) const SLICE: Duration = Duration::from_millis(10);

/// Set once, when the processor stops.
#[derive(Debug, Default)]
pub(super) struct Stopping {
    is_set: AtomicBool,
    /// The mutex of the condition variable.
    waiting: Mutex<()>,
    changed: Condvar,
}

impl Stopping {
    pub fn set(&self) {
        self.is_set.store(true, Ordering::Release);
        let _waiting = self.waiting.lock();
        self.changed.notify_all();
    }

    pub fn is_set(&self) -> bool {
        self.is_set.load(Ordering::Acquire)
    }

    /// Sleeps for this time or until the stop.
    fn sleep(&self, time: Duration) {
        let mut waiting = self.waiting.lock();
        self.changed
            .wait_while_for(&mut waiting, |()| !self.is_set(), time);
    }
}

/// Makes a thread sleep to stay within its share of a CPU.
#[derive(Debug)]
pub(super) struct Pace {
    /// Seconds of sleep per second of work.
    rest: f64,
    worked: Duration,
}

impl Pace {
    pub fn new(share: f64) -> Self {
        Self {
            rest: 1.0 / share - 1.0,
            worked: cpu_time(),
        }
    }

    /// To be called repeatedly during work; `reader_cpu` is the CPU time that another process has used for it so far.
    pub fn keep(&mut self, reader_cpu: Duration, stopping: &Stopping) {
        let slice = (cpu_time() + reader_cpu).saturating_sub(self.worked);
        if slice < SLICE {
            return;
        }
        if self.rest > 0.0 {
            stopping.sleep(slice.mul_f64(self.rest));
        }
        self.worked = cpu_time() + reader_cpu;
    }
}
