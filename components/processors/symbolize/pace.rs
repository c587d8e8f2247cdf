//! How much of a CPU a worker takes.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use profcol_elf::Source;

use rustix::time::{ClockId, clock_gettime};

use crate::shared::locks::lock;

/// What is worked at a stretch.
const STRETCH: Duration = Duration::from_millis(10);

/// Set once, when everything stops.
#[derive(Debug, Default)]
pub(super) struct Stopping {
    is_set: AtomicBool,
    /// Guards the waiting for it.
    waiting: Mutex<()>,
    changed: Condvar,
}

impl Stopping {
    pub fn set(&self) {
        self.is_set.store(true, Ordering::Release);
        let _waiting = lock(&self.waiting);
        self.changed.notify_all();
    }

    pub fn is_set(&self) -> bool {
        self.is_set.load(Ordering::Acquire)
    }

    /// Until that long has passed, or everything stops.
    fn sleep(&self, time: Duration) {
        let waiting = lock(&self.waiting);
        // A poisoned lock ends the sleep, which does no harm.
        let _ended = self
            .changed
            .wait_timeout_while(waiting, time, |()| !self.is_set());
    }
}

/// A file whose reader gives up soon after everything stops, however much there is to read.
pub(super) struct UntilStop<S> {
    pub source: S,
    pub stopping: Arc<Stopping>,
}

impl<S: Source> Source for UntilStop<S> {
    fn length(&self) -> io::Result<u64> {
        self.source.length()
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        if self.stopping.is_set() {
            return Err(io::Error::other("profcol stops"));
        }
        self.source.read_at(buffer, offset)
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
pub(super) fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    Duration::new(seconds, u32::try_from(time.tv_nsec).unwrap_or(0))
}
