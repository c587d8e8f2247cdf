//! Sends one batch to several consumers without copying it.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::join_all;
use parking_lot::{Mutex, RwLock};
use profcol_component::{
    Answer, Attempt, Batch, BatchId, Consumer, Finalizers, IntCounter, Meter, Outcome, Refusal, Tap,
};
use profcol_profile::Profiles;
use tokio::time::Instant;
use tokio_util::task::task_tracker::TaskTrackerToken;

use super::link::Target;

/// Passes the batch to all consumers concurrently, so that a blocking one does not delay the others.
///
/// Returns the worst answer. If one consumer asks to retry, the source resends the batch; consumers that already gave a
/// final answer are remembered by name and skipped, also when a reload has replaced them meanwhile.
pub(crate) struct FanOut {
    name: String,
    /// Of a receiver's output.
    tap: Option<Arc<Tap>>,
    branches: RwLock<Vec<Branch>>,
    partial: Mutex<VecDeque<Partial>>,
    meter: Meter,
    /// From the second consumer on.
    forgotten: OnceLock<IntCounter>,
}

/// A consumer of a fan-out.
#[derive(Clone)]
pub(crate) struct Branch {
    /// The same for all instances of a component.
    pub(crate) name: Arc<str>,
    pub(crate) target: Target,
}

/// A part of a batch, and the name of the consumer that gets it.
pub(crate) struct Part {
    pub(crate) name: String,
    pub(crate) profiles: Profiles,
}

/// A consumer that is about to get a batch.
struct Called {
    name: Arc<str>,
    /// `None`: all of it.
    part: Option<Profiles>,
    consumer: Arc<dyn Consumer>,
    _call: TaskTrackerToken,
}

/// A batch that some consumers have settled and others refused with a retry.
struct Partial {
    id: BatchId,
    since: Instant,
    answered: HashMap<Arc<str>, Answered>,
}

/// A consumer's final answer.
struct Answered {
    answer: Answer,
    attempt: Attempt,
}

/// Collects the answers for one batch. If the caller goes away early, the answers so far are remembered.
struct PendingAnswers<'a> {
    fan_out: &'a FanOut,
    id: BatchId,
    answered: Mutex<HashMap<Arc<str>, Answered>>,
}

/// How long a partially accepted batch is remembered: the time clients retry by default (`max_elapsed_time` of the
/// Collector's exporters).
const RESEND_WINDOW: Duration = Duration::from_secs(300);

/// Maximum number of remembered batches. A client has one in flight per `num_consumers` (10 by default), so this covers
/// a hundred clients with every request refused.
const MAX_PARTIAL: usize = 1024;

impl FanOut {
    /// `name` is the fan-out's owner.
    pub(crate) fn new(name: &str, meter: &Meter, tap: Option<Arc<Tap>>) -> Arc<Self> {
        Arc::new(Self {
            name: name.to_owned(),
            tap,
            branches: RwLock::default(),
            partial: Mutex::default(),
            meter: meter.clone(),
            forgotten: OnceLock::new(),
        })
    }

    pub(crate) fn set(&self, branches: Vec<Branch>) {
        if branches.len() > 1 {
            self.forgotten();
        }
        *self.branches.write() = branches;
    }

    /// Sends the batches for `name` to `target`, if there is such a consumer.
    pub(crate) fn redirect(&self, name: &str, target: &Target) {
        let mut branches = self.branches.write();
        for branch in branches.iter_mut().filter(|it| *it.name == *name) {
            branch.target = target.clone();
        }
    }

    /// Sends each part to its consumer. Returns the batch if there is no consumer of that name.
    pub(crate) async fn consume_parts(
        &self,
        batch: Batch,
        parts: Vec<Part>,
    ) -> Result<Answer, (Batch, String)> {
        match self.call_by_name(parts) {
            Ok(called) => Ok(self.consume_by(batch, called).await),
            Err(name) => Err((batch, name)),
        }
    }

    /// The calls begin under the lock, so that a reload that changes the consumers knows about them.
    fn call(&self) -> Vec<Called> {
        let branches = self.branches.read();
        branches.iter().map(|branch| branch.call(None)).collect()
    }

    fn call_by_name(&self, parts: Vec<Part>) -> Result<Vec<Called>, String> {
        let branches = self.branches.read();
        let called = parts.into_iter().map(|Part { name, profiles }| {
            match branches.iter().find(|branch| *branch.name == *name) {
                Some(branch) => Ok(branch.call(Some(profiles))),
                None => Err(name),
            }
        });
        called.collect()
    }

    fn forgotten(&self) -> &IntCounter {
        self.forgotten.get_or_init(|| {
            self.meter.counter(
                "profcol_fanout_forgotten_batches",
                "Partially accepted batches evicted from the cache; a resend of one is delivered twice.",
                &[("fanout", &self.name)],
            )
        })
    }

    /// The known answers for a resent batch.
    fn known_answers(&self, id: BatchId) -> HashMap<Arc<str>, Answered> {
        let mut partial = self.partial.lock();
        partial.retain(|batch| batch.since.elapsed() < RESEND_WINDOW);
        let position = partial.iter().position(|batch| batch.id == id);
        let known = position.and_then(|position| partial.remove(position));
        known.map(|batch| batch.answered).unwrap_or_default()
    }

    fn remember(&self, id: BatchId, answered: HashMap<Arc<str>, Answered>) {
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

    async fn push_once(&self, batch: Batch, consumers: &[Called]) -> Answer {
        let answers = consumers
            .iter()
            .map(|called| called.consumer.consume(called.part_of(batch.clone())));
        let answers = join_all(answers).await;
        batch.finalizers.settle(Outcome::Delivered);
        worst(answers)
    }

    async fn consume_by(&self, mut batch: Batch, consumers: Vec<Called>) -> Answer {
        if let Some(tap) = &self.tap {
            tap.pass(&batch);
        }
        let Some(id) = batch.id else {
            return match &consumers[..] {
                [only] => only.consumer.consume(only.part_of(batch)).await,
                consumers => self.push_once(batch, consumers).await,
            };
        };
        if let [only] = &consumers[..]
            && self.partial.lock().is_empty()
        {
            return only.consumer.consume(only.part_of(batch)).await;
        }
        let finalizers = std::mem::take(&mut batch.finalizers);
        let asking = PendingAnswers {
            fan_out: self,
            id,
            answered: Mutex::new(self.known_answers(id)),
        };
        let answers = consumers
            .iter()
            .map(|called| asking.push_to(called, &batch, &finalizers));
        let refusals = join_all(answers).await;
        let answer = match refusals.into_iter().flatten().reduce(Refusal::prevailing) {
            Some(refusal) => Err(refusal),
            None => asking.complete(),
        };
        drop(asking);
        finalizers.settle(Outcome::Delivered);
        answer
    }
}

#[async_trait]
impl Consumer for FanOut {
    async fn consume(&self, batch: Batch) -> Answer {
        self.consume_by(batch, self.call()).await
    }
}

impl Branch {
    fn call(&self, part: Option<Profiles>) -> Called {
        Called {
            name: Arc::clone(&self.name),
            part,
            consumer: Arc::clone(&self.target.consumer),
            _call: self.target.calls.begin(),
        }
    }
}

impl Called {
    fn part_of(&self, batch: Batch) -> Batch {
        match &self.part {
            Some(part) => batch.with_profiles(part.clone()),
            None => batch,
        }
    }
}

impl PendingAnswers<'_> {
    /// Sends the batch to a consumer without a final answer; returns the refusal if it is retryable.
    async fn push_to(
        &self,
        called: &Called,
        batch: &Batch,
        finalizers: &Finalizers,
    ) -> Option<Refusal> {
        let waiting = finalizers.clone();
        if let Some(known) = self.answered.lock().get(&called.name) {
            known.attempt.adopt(waiting);
            return None;
        }
        let (handed, attempt) = waiting.attempt();
        let copy = called.part_of(Batch {
            finalizers: handed,
            ..batch.clone()
        });
        match called.consumer.consume(copy).await {
            Err(refusal) if refusal.is_retryable() => {
                attempt.refused().settle(refusal.outcome());
                Some(refusal)
            }
            answer => {
                let answered = Answered { answer, attempt };
                let name = Arc::clone(&called.name);
                self.answered.lock().insert(name, answered);
                None
            }
        }
    }

    /// All consumers have answered: finalizers now wait for the copies.
    fn complete(&self) -> Answer {
        let answered = std::mem::take(&mut *self.answered.lock());
        worst(answered.into_values().map(|known| {
            known.attempt.accepted();
            known.answer
        }))
    }
}

impl Drop for PendingAnswers<'_> {
    fn drop(&mut self) {
        let answered = std::mem::take(&mut *self.answered.lock());
        if answered.is_empty() {
            return;
        }
        for known in answered.values() {
            // The source still holds the batch and waits for the outcome of the next attempt.
            known.attempt.release().settle(Outcome::Undelivered);
        }
        self.fan_out.remember(self.id, answered);
    }
}

/// The answer the sender of a batch must act on.
fn worst(answers: impl IntoIterator<Item = Answer>) -> Answer {
    let refusals = answers.into_iter().filter_map(Result::err);
    refusals.reduce(Refusal::prevailing).map_or(Ok(()), Err)
}

#[cfg(test)]
mod tests {
    use profcol_component::testkit::{Sink, batch, batch_with_outcomes};

    use super::super::link::Calls;
    use super::*;

    fn branches<const N: usize>(sinks: [(&str, &Arc<Sink>); N]) -> Vec<Branch> {
        let branch = |(name, sink): (&str, &Arc<Sink>)| Branch {
            name: name.into(),
            target: Target::new(Arc::clone(sink) as Arc<dyn Consumer>, &Calls::default()),
        };
        sinks.into_iter().map(branch).collect()
    }

    fn fan_out(sinks: &[&Arc<Sink>; 2]) -> Arc<FanOut> {
        let fan_out = FanOut::new("test", &Meter::default(), None);
        fan_out.set(branches([("a", sinks[0]), ("b", sinks[1])]));
        fan_out
    }

    #[tokio::test]
    async fn a_reload_does_not_forget_who_accepted_a_batch() {
        let (good, dead) = (Arc::new(Sink::default()), full(1));
        let fan_out = fan_out(&[&good, &dead]);
        let id = BatchId::unique();
        assert!(fan_out.consume(batch(3).with_id(id)).await.is_err());
        let [replaced, added] = [(), ()].map(|()| Arc::new(Sink::default()));
        fan_out.set(branches([("a", &replaced), ("b", &dead), ("c", &added)]));
        fan_out.consume(batch(3).with_id(id)).await.unwrap();
        assert_eq!(replaced.accepted(), [0; 0]);
        assert_eq!((dead.accepted(), added.accepted()), (vec![3], vec![3]));
        // With the only consumer that is left.
        let dead = full(1);
        fan_out.set(branches([("a", &good), ("b", &dead)]));
        let id = BatchId::unique();
        assert!(fan_out.consume(batch(4).with_id(id)).await.is_err());
        fan_out.set(branches([("a", &good)]));
        fan_out.consume(batch(4).with_id(id)).await.unwrap();
        assert_eq!(good.accepted(), [3, 4]);
    }

    fn full(times: usize) -> Arc<Sink> {
        Arc::new(Sink::refusing(
            (0..times).map(|_| Refusal::retry("sending queue is full")),
        ))
    }

    #[tokio::test]
    async fn a_resent_batch_goes_only_to_consumers_that_refused_it() {
        let (good, dead) = (Arc::new(Sink::default()), full(2));
        let fan_out = fan_out(&[&good, &dead]);
        let id = BatchId::unique();
        for expected in [false, false, true] {
            let answer = fan_out.consume(batch(3).with_id(id)).await;
            assert_eq!(answer.is_ok(), expected);
        }
        assert_eq!((good.accepted(), dead.accepted()), (vec![3], vec![3]));
    }

    #[tokio::test]
    async fn equal_batches_from_two_clients_are_both_delivered() {
        let (good, dead) = (Arc::new(Sink::default()), full(2));
        let fan_out = fan_out(&[&good, &dead]);
        let id = BatchId::of_content(b"the same bytes");
        for _ in 0..4 {
            let _ = fan_out.consume(batch(3).with_id(id)).await;
        }
        assert_eq!((good.accepted(), dead.accepted()), (vec![3, 3], vec![3, 3]));
    }

    #[tokio::test]
    async fn a_permanent_refusal_is_the_answer_once_all_have_answered() {
        let picky = Arc::new(Sink::refusing([Refusal::permanent("bad labels")]));
        let fan_out = fan_out(&[&picky, &full(1)]);
        let id = BatchId::unique();
        let first = fan_out.consume(batch(1).with_id(id)).await;
        assert!(first.is_err_and(|refusal| refusal.is_retryable()));
        let second = fan_out.consume(batch(1).with_id(id)).await;
        assert_eq!(second, Err(Refusal::permanent("bad labels")));
        assert_eq!(picky.offered(), 1);
    }

    #[tokio::test]
    async fn a_finalizer_gets_the_outcome_of_the_first_accepted_copy() {
        let (good, dead) = (Arc::new(Sink::default()), full(1));
        let fan_out = fan_out(&[&good, &dead]);
        let (watched, outcomes) = batch_with_outcomes(1);
        let id = BatchId::unique();
        let with = |finalizers| Batch {
            finalizers,
            ..batch(1).with_id(id)
        };
        let (handed, attempt) = watched.finalizers.attempt();
        assert!(fan_out.consume(with(handed)).await.is_err());
        let (handed, attempt) = attempt.refused().attempt();
        assert_eq!(outcomes.seen(), []);
        fan_out.consume(with(handed)).await.unwrap();
        attempt.accepted();
        assert_eq!(outcomes.seen(), [Outcome::Delivered]);
    }

    #[tokio::test(start_paused = true)]
    async fn remembers_answers_when_the_caller_hangs_up() {
        let slow = Arc::new(Sink::default().taking(Duration::from_secs(10)));
        let good = Arc::new(Sink::default());
        let fan_out = fan_out(&[&good, &slow]);
        let id = BatchId::unique();
        let hung_up = fan_out.consume(batch(2).with_id(id));
        let _ = tokio::time::timeout(Duration::from_secs(5), hung_up).await;
        fan_out.consume(batch(2).with_id(id)).await.unwrap();
        assert_eq!((good.accepted(), slow.accepted()), (vec![2], vec![2]));
    }

    #[tokio::test(start_paused = true)]
    async fn evicts_a_batch_that_is_not_resent() {
        let (good, dead) = (Arc::new(Sink::default()), full(1));
        let fan_out = fan_out(&[&good, &dead]);
        let id = BatchId::unique();
        let _ = fan_out.consume(batch(1).with_id(id)).await;
        tokio::time::advance(RESEND_WINDOW).await;
        fan_out.consume(batch(1).with_id(id)).await.unwrap();
        assert_eq!(good.accepted(), [1, 1]);
    }
}
