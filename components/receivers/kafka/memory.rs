//! Memory for messages (decision 16). Nobody can be refused here: a message waits for memory, and no more are read meanwhile.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use profcol_admission::{Admission, Exhausted, Reservation};
use profcol_component::Stop;

/// Delay before memory is asked for again, like that of refused clients.
const RETRY_DELAY: Duration = Duration::from_secs(1);

pub(super) struct Memory {
    admission: Admission,
    stop: Stop,
    /// Messages that wait, at most those in flight.
    waiting: AtomicUsize,
}

/// A message that waits.
struct Waiting<'a>(&'a AtomicUsize);

impl Memory {
    pub(super) fn new(admission: Admission, stop: Stop) -> Self {
        Self {
            admission,
            stop,
            waiting: AtomicUsize::new(0),
        }
    }

    /// Memory for an answer of a broker; `None` if there is none now, or messages wait for it.
    pub(super) fn for_answer(&self, bytes: usize) -> Option<Reservation> {
        let is_short = self.waiting.load(Ordering::Relaxed) > 0;
        (!is_short).then(|| self.admission.reserve(bytes).ok())?
    }

    /// Waits for `bytes`; `None` after a stop.
    pub(super) async fn reserve(&self, bytes: usize) -> Option<Reservation> {
        let admitted = self.admitted(|memory| memory.resize_between(0, bytes));
        admitted.await.map(|((), memory)| memory)
    }

    /// Repeats `attempt` until it gets the memory that it asks for; `None` after a stop. If nothing else is in progress in the
    /// process, it should take what there is: with a least of 0, one message at a time proceeds.
    pub(super) async fn admitted<T>(
        &self,
        mut attempt: impl FnMut(&mut Reservation) -> Result<T, Exhausted>,
    ) -> Option<(T, Reservation)> {
        let mut waiting = None;
        loop {
            let mut memory = self.admission.reservation();
            match attempt(&mut memory) {
                Ok(done) => return Some((done, memory)),
                Err(error) => tracing::debug!(%error, "A message waits for memory."),
            }
            drop(memory);
            waiting.get_or_insert_with(|| Waiting::new(&self.waiting));
            tokio::select! {
                () = tokio::time::sleep(RETRY_DELAY) => {}
                () = self.stop.cancelled() => return None,
            }
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
