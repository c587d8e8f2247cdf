//! How much of a CPU a worker takes.

use std::sync::{Condvar, Mutex};
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

use crate::shared::locks::lock;

/// What is worked at a stretch.
const STRETCH: Duration = Duration::from_millis(10);

/// Set once, when everything stops.
#[derive(Debug, Default)]
pub(super) struct Stopping {
    is_set: Mutex<bool>,
    changed: Condvar,
}

impl Stopping {
    pub fn set(&self) {
        *lock(&self.is_set) = true;
        self.changed.notify_all();
    }

    pub fn is_set(&self) -> bool {
        *lock(&self.is_set)
    }

    /// Until that long has passed, or everything stops.
    fn sleep(&self, time: Duration) {
        let is_set = lock(&self.is_set);
        // A poisoned lock ends the sleep, which does no harm.
        let _ended = self
            .changed
            .wait_timeout_while(is_set, time, |is_set| !*is_set);
    }
}

/// Makes a thread sleep so long that it takes no more than its share.
#[derive(Debug)]
pub(super) struct Pace {
    /// How long to sleep for each second of work.
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

    /// To be called again and again during work.
    pub fn keep(&mut self, stopping: &Stopping) {
        let stretch = cpu_time().saturating_sub(self.worked);
        if stretch < STRETCH {
            return;
        }
        if self.rest > 0.0 {
            stopping.sleep(stretch.mul_f64(self.rest));
        }
        self.worked = cpu_time();
    }
}

/// Of this thread.
fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    Duration::new(seconds, u32::try_from(time.tv_nsec).unwrap_or(0))
}
