//! Reports the outcome of a batch once, after all of its copies and pieces are settled.
//!
//! There are no acknowledgement messages and no context stacks: every copy of a batch holds a reference and records its
//! own outcome, and the last copy dropped reports the worst one. A copy that is dropped without an outcome counts as
//! lost.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use parking_lot::Mutex;
use tokio::sync::oneshot;

/// Outcome of a batch, from best to worst.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Outcome {
    /// Every copy reached its destination, or was filtered out on purpose.
    Delivered = 0,
    /// A destination was unreachable in time; resending may succeed.
    Undelivered = 1,
    /// A destination rejected it permanently.
    Rejected = 2,
    /// A copy was dropped without an outcome: at the deadline of a shutdown, or by a panic in a component.
    Lost = 3,
}

impl Outcome {
    /// Whether there is nothing to gain from sending the batch again.
    pub fn is_final(self) -> bool {
        matches!(self, Self::Delivered | Self::Rejected)
    }

    pub fn name(self) -> &'static str {
        match self {
            Self::Delivered => "delivered",
            Self::Undelivered => "undelivered",
            Self::Rejected => "rejected",
            Self::Lost => "lost",
        }
    }
}

/// Reports the outcome of one copy.
pub struct Finalizer {
    shared: Arc<Shared>,
    settled: bool,
}

/// The finalizers of all batches that one batch was merged from.
#[derive(Clone, Debug, Default)]
pub struct Finalizers(Vec<Finalizer>);

/// A repeatable attempt to pass a batch on. While it is open, the outcome of its copy is not reported to the waiting
/// finalizers.
pub struct Attempt(Arc<Mutex<AttemptState>>);

#[derive(Default)]
struct AttemptState {
    waiting: Finalizers,
    outcome: Option<Outcome>,
    accepted: bool,
}

struct Shared {
    worst: AtomicU8,
    /// Taken when the last copy is gone.
    report: Option<Box<dyn FnOnce(Outcome) + Send + Sync>>,
}

// === impl Finalizer ===

impl Finalizer {
    /// `report` is called when the last copy is settled.
    pub fn new(report: impl FnOnce(Outcome) + Send + Sync + 'static) -> Self {
        let shared = Shared {
            worst: AtomicU8::new(0),
            report: Some(Box::new(report)),
        };
        Self {
            shared: Arc::new(shared),
            settled: false,
        }
    }

    pub fn settle(mut self, outcome: Outcome) {
        self.record(outcome);
    }

    fn record(&mut self, outcome: Outcome) {
        self.settled = true;
        self.shared.worst.fetch_max(outcome as u8, Ordering::AcqRel);
    }
}

impl Clone for Finalizer {
    fn clone(&self) -> Self {
        Self {
            shared: Arc::clone(&self.shared),
            settled: false,
        }
    }
}

impl Drop for Finalizer {
    fn drop(&mut self) {
        if !self.settled {
            self.record(Outcome::Lost);
        }
    }
}

impl fmt::Debug for Finalizer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Finalizer")
    }
}

// === impl Finalizers ===

impl Finalizers {
    /// Finalizers that send the outcome to a receiver, which may be gone by then.
    pub fn watched() -> (Self, oneshot::Receiver<Outcome>) {
        let (sender, receiver) = oneshot::channel();
        let finalizer = Finalizer::new(move |outcome| {
            let _ = sender.send(outcome);
        });
        (Self(vec![finalizer]), receiver)
    }

    pub fn add(&mut self, finalizer: Finalizer) {
        self.0.push(finalizer);
    }

    /// Adds the finalizers of `other`, for merged batches.
    pub fn append(&mut self, mut other: Finalizers) {
        self.0.append(&mut other.0);
    }

    pub fn settle(self, outcome: Outcome) {
        for finalizer in self.0 {
            finalizer.settle(outcome);
        }
    }

    /// Finalizers for a batch that may be resent after a refusal, and the attempt to close with the answer.
    pub fn attempt(self) -> (Finalizers, Attempt) {
        let state = AttemptState {
            waiting: self,
            ..AttemptState::default()
        };
        let attempt = Attempt(Arc::new(Mutex::new(state)));
        let mut handed = Finalizers::default();
        if !attempt.0.lock().waiting.is_empty() {
            let state = Attempt(Arc::clone(&attempt.0));
            handed.add(Finalizer::new(move |outcome| state.reported(outcome)));
        }
        (handed, attempt)
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

// === impl Attempt ===

impl Attempt {
    /// The state of an accepted batch with its outcome, for finalizers that [adopt](Self::adopt) it.
    pub fn with_outcome(outcome: Outcome) -> Self {
        Self(Arc::new(Mutex::new(AttemptState {
            outcome: Some(outcome),
            ..AttemptState::default()
        })))
    }

    /// The batch was accepted: the waiting finalizers get its outcome, now or once it is known.
    pub fn accepted(self) {
        let mut state = self.0.lock();
        state.accepted = true;
        if let Some(outcome) = state.outcome {
            let waiting = std::mem::take(&mut state.waiting);
            drop(state);
            waiting.settle(outcome);
        }
    }

    /// The batch was refused: returns the waiting finalizers for another attempt.
    pub fn refused(self) -> Finalizers {
        self.release()
    }

    /// Returns the waiting finalizers. The outcome of the copy is kept for those that [adopt](Self::adopt) it.
    pub fn release(&self) -> Finalizers {
        std::mem::take(&mut self.0.lock().waiting)
    }

    /// The batch was resent; the copy passed on first reports its outcome.
    pub fn adopt(&self, waiting: Finalizers) {
        self.0.lock().waiting.append(waiting);
    }

    fn reported(&self, outcome: Outcome) {
        let mut state = self.0.lock();
        state.outcome = Some(outcome);
        if state.accepted {
            std::mem::take(&mut state.waiting).settle(outcome);
        }
    }
}

// === impl Shared ===

impl Drop for Shared {
    fn drop(&mut self) {
        let outcome = match *self.worst.get_mut() {
            0 => Outcome::Delivered,
            1 => Outcome::Undelivered,
            2 => Outcome::Rejected,
            _ => Outcome::Lost,
        };
        if let Some(report) = self.report.take() {
            report(outcome);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn watched() -> (Finalizer, Arc<Mutex<Vec<Outcome>>>) {
        let seen = Arc::new(Mutex::new(Vec::new()));
        let sink = Arc::clone(&seen);
        (
            Finalizer::new(move |outcome| sink.lock().push(outcome)),
            seen,
        )
    }

    #[test]
    fn reports_once_after_the_last_copy_with_the_worst_outcome() {
        let (first, seen) = watched();
        let second = first.clone();
        let third = second.clone();
        first.settle(Outcome::Delivered);
        third.settle(Outcome::Rejected);
        assert!(seen.lock().is_empty());
        second.settle(Outcome::Undelivered);
        assert_eq!(*seen.lock(), [Outcome::Rejected]);
    }

    #[test]
    fn counts_a_dropped_copy_as_lost() {
        let (first, seen) = watched();
        drop(first.clone());
        first.settle(Outcome::Delivered);
        assert_eq!(*seen.lock(), [Outcome::Lost]);
    }

    #[test]
    fn a_merged_batch_reports_to_all_finalizers() {
        let ((a, seen_a), (b, seen_b)) = (watched(), watched());
        let mut merged = Finalizers::default();
        merged.add(a);
        let mut other = Finalizers::default();
        other.add(b);
        merged.append(other);
        let pieces = [merged.clone(), merged];
        for piece in pieces {
            piece.settle(Outcome::Delivered);
        }
        assert_eq!(*seen_a.lock(), [Outcome::Delivered]);
        assert_eq!(*seen_b.lock(), [Outcome::Delivered]);
    }

    #[test]
    fn a_refused_attempt_does_not_affect_the_outcome() {
        let (first, seen) = watched();
        let mut waiting = Finalizers::default();
        waiting.add(first);
        let (handed, attempt) = waiting.attempt();
        handed.settle(Outcome::Undelivered);
        let (handed, attempt) = attempt.refused().attempt();
        attempt.accepted();
        assert!(seen.lock().is_empty());
        handed.settle(Outcome::Delivered);
        assert_eq!(*seen.lock(), [Outcome::Delivered]);
    }
}
