//! Remembers who has settled a batch that others refused with a retry, until its source resends it.

use std::collections::{HashMap, VecDeque};
use std::hash::Hash;
use std::sync::OnceLock;
use std::time::Duration;

use parking_lot::Mutex;
use profcol_component::{
    Answer, Attempt, Batch, BatchId, Consumer, Finalizers, IntCounter, Meter, Outcome, Refusal,
};
use tokio::time::Instant;

/// How long a partially accepted batch is remembered: the time clients retry by default (`max_elapsed_time` of the
/// Collector's exporters).
pub(crate) const RESEND_WINDOW: Duration = Duration::from_secs(300);

/// Maximum number of remembered batches. A client has one in flight per `num_consumers` (10 by default), so this covers
/// a hundred clients with every request refused.
const MAX_PARTIAL: usize = 1024;

/// The partially accepted batches of one owner. `K` names the parts with an answer of their own.
pub(crate) struct Resends<K> {
    owner: String,
    partial: Mutex<VecDeque<Partial<K>>>,
    meter: Meter,
    forgotten: OnceLock<IntCounter>,
}

/// A partly settled batch: the other parts were refused with a retry.
struct Partial<K> {
    id: BatchId,
    since: Instant,
    answered: HashMap<K, Answered>,
}

/// The final answer to a part.
struct Answered {
    answer: Answer,
    attempt: Attempt,
}

/// Collects the answers for one batch. If the caller goes away early, the answers so far are remembered.
pub(crate) struct PendingAnswers<'a, K: Clone + Eq + Hash> {
    resends: &'a Resends<K>,
    id: BatchId,
    answered: Mutex<HashMap<K, Answered>>,
}

// === impl Resends ===

impl<K: Clone + Eq + Hash> Resends<K> {
    pub(crate) fn new(owner: &str, meter: &Meter) -> Self {
        Self {
            owner: owner.to_owned(),
            partial: Mutex::default(),
            meter: meter.clone(),
            forgotten: OnceLock::new(),
        }
    }

    /// Created by the first owner with several parts.
    pub(crate) fn forgotten(&self) -> &IntCounter {
        self.forgotten.get_or_init(|| {
            self.meter.counter(
                "profcol_fanout_forgotten_batches",
                "Partially accepted batches evicted from the cache; a resend of one is delivered twice.",
                &[("fanout", &self.owner)],
            )
        })
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.partial.lock().is_empty()
    }

    /// The answers for a batch, with those that are known if it was sent before.
    pub(crate) fn answers(&self, id: BatchId) -> PendingAnswers<'_, K> {
        let mut partial = self.partial.lock();
        partial.retain(|batch| batch.since.elapsed() < RESEND_WINDOW);
        let position = partial.iter().position(|batch| batch.id == id);
        let known = position.and_then(|position| partial.remove(position));
        let answered = known.map(|batch| batch.answered).unwrap_or_default();
        PendingAnswers {
            resends: self,
            id,
            answered: Mutex::new(answered),
        }
    }

    fn remember(&self, id: BatchId, answered: HashMap<K, Answered>) {
        let mut partial = self.partial.lock();
        if partial.len() == MAX_PARTIAL {
            partial.pop_front();
            self.forgotten().inc();
        }
        partial.push_back(Partial {
            id,
            since: Instant::now(),
            answered,
        });
    }
}

// === impl PendingAnswers ===

impl<K: Clone + Eq + Hash> PendingAnswers<'_, K> {
    /// Lets finalizers wait for the parts that have a final answer, and returns those.
    pub(crate) fn adopt_all(&self, waiting: &Finalizers) -> Vec<K> {
        let answered = self.answered.lock();
        for known in answered.values() {
            known.attempt.adopt(waiting.clone());
        }
        answered.keys().cloned().collect()
    }

    /// Sends a part to its consumer, if it has no final answer; returns the refusal if it is retryable.
    pub(crate) async fn push_to(
        &self,
        key: K,
        mut part: Batch,
        consumer: &dyn Consumer,
    ) -> Option<Refusal> {
        let waiting = std::mem::take(&mut part.finalizers);
        if let Some(known) = self.answered.lock().get(&key) {
            known.attempt.adopt(waiting);
            return None;
        }
        let (handed, attempt) = waiting.attempt();
        part.finalizers = handed;
        match consumer.consume(part).await {
            Err(refusal) if refusal.is_retryable() => {
                attempt.refused().settle(refusal.outcome());
                Some(refusal)
            }
            answer => {
                let answered = Answered { answer, attempt };
                self.answered.lock().insert(key, answered);
                None
            }
        }
    }

    /// The answer for the whole batch, given the retryable refusals of parts. Without any, finalizers now wait for the
    /// copies.
    pub(crate) fn finish(self, refusals: impl IntoIterator<Item = Refusal>) -> Answer {
        match refusals.into_iter().reduce(Refusal::prevailing) {
            Some(refusal) => Err(refusal),
            None => {
                let answered = std::mem::take(&mut *self.answered.lock());
                worst(answered.into_values().map(|known| {
                    known.attempt.accepted();
                    known.answer
                }))
            }
        }
    }
}

impl<K: Clone + Eq + Hash> Drop for PendingAnswers<'_, K> {
    fn drop(&mut self) {
        let answered = std::mem::take(&mut *self.answered.lock());
        if answered.is_empty() {
            return;
        }
        for known in answered.values() {
            // The source still holds the batch and waits for the outcome of the next attempt.
            known.attempt.release().settle(Outcome::Undelivered);
        }
        self.resends.remember(self.id, answered);
    }
}

/// The answer the sender of a batch must act on.
pub(crate) fn worst(answers: impl IntoIterator<Item = Answer>) -> Answer {
    let refusals = answers.into_iter().filter_map(Result::err);
    refusals.reduce(Refusal::prevailing).map_or(Ok(()), Err)
}
