//! Memory for records that are pulled: messages, lines of files (decision 16). Nobody can be refused here: a record waits for
//! memory, and no more are read meanwhile.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use profcol_admission::{Admission, Exhausted, Reservation};
use profcol_component::Stop;
use tokio::sync::{Semaphore, SemaphorePermit};

/// Delay before memory is asked for again, like that of refused clients.
const RETRY_DELAY: Duration = Duration::from_secs(1);

pub struct Memory {
    admission: Admission,
    stop: Stop,
    /// Records that wait, at most those in flight.
    waiting: AtomicUsize,
    /// One record at a time may get less than it asks for, if nothing else is in progress in the process. So each is
    /// delivered, however short memory is.
    short_grants: Semaphore,
}

/// The memory of a record, until it is dropped.
pub struct Grant<'a> {
    memory: Reservation,
    may_be_short: Option<SemaphorePermit<'a>>,
}

/// A record that waits.
struct Waiting<'a>(&'a AtomicUsize);

impl Memory {
    pub fn new(admission: Admission, stop: Stop) -> Self {
        Self {
            admission,
            stop,
            waiting: AtomicUsize::new(0),
            short_grants: Semaphore::new(1),
        }
    }

    /// Memory to read more; `None` if there is none now, or records wait for it.
    pub fn to_read(&self, bytes: usize) -> Option<Reservation> {
        if self.waiting.load(Ordering::Relaxed) > 0 {
            return None;
        }
        self.admission.reserve(bytes).ok()
    }

    /// Waits for `bytes`; `None` after a stop.
    pub async fn reserve(&self, bytes: usize) -> Option<Grant<'_>> {
        let granted = self.when_granted(|grant| grant.resize(bytes));
        granted.await.map(|((), grant)| grant)
    }

    /// Repeats `attempt` until it gets the memory that it asks for; `None` after a stop.
    pub async fn when_granted<T>(
        &self,
        mut attempt: impl FnMut(&mut Grant<'_>) -> Result<T, Exhausted>,
    ) -> Option<(T, Grant<'_>)> {
        let mut waiting = None;
        loop {
            let mut grant = Grant {
                memory: self.admission.reservation(),
                may_be_short: self.short_grants.try_acquire().ok(),
            };
            match attempt(&mut grant) {
                Ok(done) => return Some((done, grant)),
                Err(error) => tracing::debug!(%error, "A record waits for memory."),
            }
            drop(grant);
            waiting.get_or_insert_with(|| Waiting::new(&self.waiting));
            tokio::select! {
                () = tokio::time::sleep(RETRY_DELAY) => {}
                () = self.stop.cancelled() => return None,
            }
        }
    }
}

impl Grant<'_> {
    /// Changes it to `bytes`.
    pub fn resize(&mut self, bytes: usize) -> Result<(), Exhausted> {
        match self.may_be_short {
            Some(_) => self.memory.resize_between(0, bytes),
            None => self.memory.resize(bytes),
        }
    }
}

impl<'a> Waiting<'a> {
    fn new(waiting: &'a AtomicUsize) -> Self {
        waiting.fetch_add(1, Ordering::Relaxed);
        Self(waiting)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
