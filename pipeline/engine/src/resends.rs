//! Remembers who has settled a batch that others refused with a retry, or gave up on later, until its source resends it.

use std::collections::{HashMap, VecDeque};
use std::hash::Hash;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::Mutex;
use profcol_component::{
    Answer, Attempt, Batch, BatchId, Consumer, Finalizer, Finalizers, IntCounter, Meter, Outcome,
    Refusal,
};
use tokio::time::Instant;

/// How long a partially accepted batch is remembered: the time clients retry by default (`max_elapsed_time` of the
/// Collector's exporters).
pub(crate) const RESEND_WINDOW: Duration = Duration::from_secs(300);

/// Maximum number of remembered batches. A client has one in flight per `num_consumers` (10 by default), so this covers
/// a hundred clients with every request refused.
const MAX_PARTIAL: usize = 1024;

/// The partially accepted batches of one owner. `K` names the parts with an answer of their own.
pub(crate) struct Resends<K>(Arc<Shared<K>>);

struct Shared<K> {
    owner: String,
    partial: Mutex<VecDeque<Partial<K>>>,
    meter: Meter,
    forgotten: OnceLock<IntCounter>,
}

/// A partly settled batch: the other parts were refused with a retry, or their consumers gave up on them.
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
    resends: &'a Shared<K>,
    id: BatchId,
    answered: Mutex<HashMap<K, Answered>>,
    /// `None` if nobody waits for the outcome: then the source has forgotten the batch once it is accepted.
    outcomes: Option<Arc<Outcomes<K>>>,
}

/// Collects the outcomes of the parts of one batch; each finalizer of a part holds a reference. The last one reports to
/// the finalizers of the batch. If its source will resend it, the parts that need no resend are remembered first.
struct Outcomes<K: Clone + Eq + Hash> {
    resends: Arc<Shared<K>>,
    id: BatchId,
    waiting: Finalizers,
    known: Mutex<HashMap<K, Outcome>>,
}

// === impl Resends ===

impl<K: Clone + Eq + Hash> Resends<K> {
    pub(crate) fn new(owner: &str, meter: &Meter) -> Self {
        Self(Arc::new(Shared {
            owner: owner.to_owned(),
            partial: Mutex::default(),
            meter: meter.clone(),
            forgotten: OnceLock::new(),
        }))
    }

    /// Creates the counter; called by owners with several parts.
    pub(crate) fn count_forgotten(&self) {
        self.0.forgotten();
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.partial.lock().is_empty()
    }

    /// The answers for a batch, with those that are known if it was sent before. `waiting` are its finalizers.
    pub(crate) fn answers(&self, id: BatchId, waiting: &Finalizers) -> PendingAnswers<'_, K> {
        let mut partial = self.0.partial.lock();
        partial.retain(|batch| batch.since.elapsed() < RESEND_WINDOW);
        let position = partial.iter().position(|batch| batch.id == id);
        let known = position.and_then(|position| partial.remove(position));
        let answered = known.map(|batch| batch.answered).unwrap_or_default();
        PendingAnswers {
            resends: &self.0,
            id,
            answered: Mutex::new(answered),
            outcomes: (!waiting.is_empty()).then(|| {
                Arc::new(Outcomes {
                    resends: Arc::clone(&self.0),
                    id,
                    waiting: waiting.clone(),
                    known: Mutex::default(),
                })
            }),
        }
    }
}

// === impl Shared ===

impl<K> Shared<K> {
    fn forgotten(&self) -> &IntCounter {
        self.forgotten.get_or_init(|| {
            self.meter.counter(
                "profcol_fanout_forgotten_batches",
                "Partially accepted or delivered batches evicted from the cache; a resend of one is delivered twice.",
                &[("fanout", &self.owner)],
            )
        })
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

impl<K: Clone + Eq + Hash + Send + Sync + 'static> PendingAnswers<'_, K> {
    /// Lets the batch wait for the parts that have a final answer, and returns those.
    pub(crate) fn adopt_all(&self) -> Vec<K> {
        let answered = self.answered.lock();
        for (key, known) in &*answered {
            known.attempt.adopt(self.finalizers_of(key));
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
        let waiting = self.finalizers_of(&key);
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

    fn finalizers_of(&self, key: &K) -> Finalizers {
        let mut finalizers = Finalizers::default();
        if let Some(outcomes) = &self.outcomes {
            let (key, outcomes) = (key.clone(), Arc::clone(outcomes));
            finalizers.add(Finalizer::new(move |outcome| {
                outcomes.known.lock().insert(key, outcome);
            }));
        }
        finalizers
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

// === impl Outcomes ===

impl<K: Clone + Eq + Hash> Drop for Outcomes<K> {
    fn drop(&mut self) {
        let known = std::mem::take(self.known.get_mut());
        let is_open = |outcome: &Outcome| !outcome.is_final();
        // Like the answer: a part that can still be delivered decides.
        let open = known.values().copied().filter(is_open).max();
        let outcome = open.or_else(|| known.values().copied().max());
        if open.is_some() {
            let settled = known.into_iter().filter(|(_, outcome)| outcome.is_final());
            let settled = settled.map(|(key, outcome)| {
                let (answer, attempt) = (Ok(()), Attempt::with_outcome(outcome));
                (key, Answered { answer, attempt })
            });
            let settled: HashMap<K, Answered> = settled.collect();
            if !settled.is_empty() {
                self.resends.remember(self.id, settled);
            }
        }
        std::mem::take(&mut self.waiting).settle(outcome.unwrap_or(Outcome::Delivered));
    }
}

/// The answer the sender of a batch must act on.
pub(crate) fn worst(answers: impl IntoIterator<Item = Answer>) -> Answer {
    let refusals = answers.into_iter().filter_map(Result::err);
    refusals.reduce(Refusal::prevailing).map_or(Ok(()), Err)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_of_too_many_batches_is_forgotten_and_counted() {
        let meter = Meter::default();
        let resends = Resends::new("test", &meter);
        resends.count_forgotten();
        let forgotten = |batches: u64| {
            let text = String::from_utf8(meter.render().unwrap()).unwrap();
            let series = r#"profcol_fanout_forgotten_batches{fanout="test"}"#;
            text.contains(&format!("{series} {batches}\n"))
        };
        let ids: Vec<_> = (0..=MAX_PARTIAL).map(|_| BatchId::unique()).collect();
        let remember = |id| {
            let attempt = Attempt::with_outcome(Outcome::Delivered);
            let answer = Ok(());
            let answered = HashMap::from([("a", Answered { answer, attempt })]);
            resends.0.remember(id, answered);
        };
        ids[..MAX_PARTIAL].iter().copied().for_each(remember);
        assert!(forgotten(0));
        remember(ids[MAX_PARTIAL]);
        assert!(forgotten(1));
        let known = |id| resends.answers(id, &Finalizers::default()).adopt_all();
        assert_eq!(known(ids[0]), [""; 0]);
        assert_eq!(known(ids[1]), ["a"]);
        assert_eq!(known(ids[MAX_PARTIAL]), ["a"]);
    }
}
