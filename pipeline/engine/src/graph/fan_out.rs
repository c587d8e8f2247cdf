//! Sends one batch to several consumers without copying it.

use std::sync::Arc;

use async_trait::async_trait;
use futures_util::future::join_all;
use parking_lot::RwLock;
use profcol_component::{Answer, Batch, Consumer, Meter, Outcome, Tap};
use profcol_profile::Profiles;
use tokio_util::task::task_tracker::TaskTrackerToken;

use super::link::Target;
use crate::resends::{Resends, worst};

/// Passes the batch to all consumers concurrently, so that a blocking one does not delay the others.
///
/// Returns the worst answer. If one consumer asks to retry, or gives up on the batch later, the source resends it;
/// consumers that already gave a final answer, or have delivered it, are remembered by name and skipped, also when a
/// reload has replaced them meanwhile.
pub(crate) struct FanOut {
    /// The tap of a receiver's output.
    tap: Option<Arc<Tap>>,
    branches: RwLock<Vec<Branch>>,
    /// By the name of the consumer.
    resends: Resends<Arc<str>>,
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

/// There is no consumer for a pipeline's part.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("a reload has disconnected the pipeline {0}")]
pub(crate) struct UnknownPipeline(pub(crate) String);

/// A consumer that is about to get a batch.
struct Called {
    name: Arc<str>,
    /// `None`: all of it.
    part: Option<Profiles>,
    consumer: Arc<dyn Consumer>,
    _call: TaskTrackerToken,
}

impl FanOut {
    /// `name` is the fan-out's owner.
    pub(crate) fn new(name: &str, meter: &Meter, tap: Option<Arc<Tap>>) -> Arc<Self> {
        Arc::new(Self {
            tap,
            branches: RwLock::default(),
            resends: Resends::new(name, meter),
        })
    }

    pub(crate) fn set(&self, branches: Vec<Branch>) {
        if branches.len() > 1 {
            self.resends.count_forgotten();
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
    ) -> Result<Answer, (Batch, UnknownPipeline)> {
        match self.call_by_name(parts) {
            Ok(called) => Ok(self.consume_by(batch, called).await),
            Err(unknown) => Err((batch, unknown)),
        }
    }

    /// The calls begin under the lock, so that a reload that changes the consumers knows about them.
    fn call(&self) -> Vec<Called> {
        let branches = self.branches.read();
        branches.iter().map(|branch| branch.call(None)).collect()
    }

    fn call_by_name(&self, parts: Vec<Part>) -> Result<Vec<Called>, UnknownPipeline> {
        let branches = self.branches.read();
        let called = parts.into_iter().map(|Part { name, profiles }| {
            match branches.iter().find(|branch| *branch.name == *name) {
                Some(branch) => Ok(branch.call(Some(profiles))),
                None => Err(UnknownPipeline(name)),
            }
        });
        called.collect()
    }

    async fn push_once(&self, batch: Batch, consumers: &[Called]) -> Answer {
        let answers = consumers
            .iter()
            .map(|called| called.consumer.consume(called.copy_of(batch.clone())));
        let answers = join_all(answers).await;
        batch.finalizers.settle(Outcome::Delivered);
        worst(answers)
    }

    async fn consume_by(&self, mut batch: Batch, consumers: Vec<Called>) -> Answer {
        if let Some(tap) = &self.tap {
            tap.pass(&batch);
        }
        let Some(id) = batch.resend_id else {
            return match &consumers[..] {
                [only] => only.consumer.consume(only.all_of(batch)).await,
                consumers => self.push_once(batch, consumers).await,
            };
        };
        if let [only] = &consumers[..]
            && self.resends.is_empty()
        {
            return only.consumer.consume(only.all_of(batch)).await;
        }
        let finalizers = std::mem::take(&mut batch.finalizers);
        let answers = self.resends.answers(id, &finalizers);
        let refusals = consumers.iter().map(|called| {
            let copy = match consumers.len() {
                1 => called.all_of(batch.clone()),
                _ => called.copy_of(batch.clone()),
            };
            answers.push_to(Arc::clone(&called.name), copy, &*called.consumer)
        });
        let refusals = join_all(refusals).await;
        let answer = answers.finish(refusals.into_iter().flatten());
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
    /// What the only consumer gets.
    fn all_of(&self, batch: Batch) -> Batch {
        match &self.part {
            Some(part) => batch.with_profiles(part.clone()),
            None => batch,
        }
    }

    /// What one of several consumers gets. All may lead to the same destination, with different processors on the way.
    fn copy_of(&self, batch: Batch) -> Batch {
        let id = batch.id.within(&self.name);
        self.all_of(batch.with_id(id))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::time::Duration;

    use parking_lot::Mutex;
    use profcol_component::testkit::{Sink, batch, batch_with_outcomes};
    use profcol_component::{BatchId, Finalizers, Refusal};
    use tokio::task::JoinSet;

    use super::super::link::Calls;
    use super::*;
    use crate::resends::RESEND_WINDOW;

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
        assert!(fan_out.consume(batch(3).with_resend_id(id)).await.is_err());
        let [replaced, added] = [(), ()].map(|()| Arc::new(Sink::default()));
        fan_out.set(branches([("a", &replaced), ("b", &dead), ("c", &added)]));
        fan_out.consume(batch(3).with_resend_id(id)).await.unwrap();
        assert_eq!(replaced.accepted(), [0; 0]);
        assert_eq!((dead.accepted(), added.accepted()), (vec![3], vec![3]));
        // With the only consumer that is left.
        let dead = full(1);
        fan_out.set(branches([("a", &good), ("b", &dead)]));
        let id = BatchId::unique();
        assert!(fan_out.consume(batch(4).with_resend_id(id)).await.is_err());
        fan_out.set(branches([("a", &good)]));
        fan_out.consume(batch(4).with_resend_id(id)).await.unwrap();
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
            let answer = fan_out.consume(batch(3).with_resend_id(id)).await;
            assert_eq!(answer.is_ok(), expected);
        }
        assert_eq!((good.accepted(), dead.accepted()), (vec![3], vec![3]));
    }

    #[tokio::test]
    async fn each_of_several_copies_has_an_id_of_its_own_and_keeps_it() {
        let (good, dead) = (Arc::new(Sink::default()), full(1));
        let fan_out = fan_out(&[&good, &dead]);
        let id = BatchId::unique();
        let batch = || batch(3).with_id(id).with_resend_id(id);
        assert!(fan_out.consume(batch()).await.is_err());
        fan_out.consume(batch()).await.unwrap();
        let (good, dead) = (good.offered_ids(), dead.offered_ids());
        assert_eq!((good.len(), dead.len()), (1, 2));
        assert_eq!(dead[0], dead[1]);
        assert!(good[0] != dead[0] && good[0] != id && dead[0] != id);
        // The only consumer gets the batch itself.
        let only = Arc::new(Sink::default());
        fan_out.set(branches([("a", &only)]));
        fan_out.consume(batch()).await.unwrap();
        assert_eq!(only.offered_ids(), [id]);
    }

    #[tokio::test]
    async fn equal_batches_from_two_clients_are_both_delivered() {
        let (good, dead) = (Arc::new(Sink::default()), full(2));
        let fan_out = fan_out(&[&good, &dead]);
        let id = BatchId::of_content(b"the same bytes");
        for _ in 0..4 {
            let _ = fan_out.consume(batch(3).with_resend_id(id)).await;
        }
        assert_eq!((good.accepted(), dead.accepted()), (vec![3, 3], vec![3, 3]));
    }

    #[tokio::test]
    async fn a_permanent_refusal_is_the_answer_once_all_have_answered() {
        let picky = Arc::new(Sink::refusing([Refusal::permanent("bad labels")]));
        let fan_out = fan_out(&[&picky, &full(1)]);
        let id = BatchId::unique();
        let first = fan_out.consume(batch(1).with_resend_id(id)).await;
        assert!(first.is_err_and(|refusal| refusal.is_retryable()));
        let second = fan_out.consume(batch(1).with_resend_id(id)).await;
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
            ..batch(1).with_resend_id(id)
        };
        let (handed, attempt) = watched.finalizers.attempt();
        assert!(fan_out.consume(with(handed)).await.is_err());
        let (handed, attempt) = attempt.refused().attempt();
        assert_eq!(outcomes.seen(), []);
        fan_out.consume(with(handed)).await.unwrap();
        attempt.accepted();
        assert_eq!(outcomes.seen(), [Outcome::Delivered]);
    }

    /// Accepts each batch, with the scripted outcomes, then delivers.
    #[derive(Default)]
    struct Queue {
        outcomes: Mutex<VecDeque<Outcome>>,
        taken: Mutex<Vec<BatchId>>,
        deliveries: Mutex<JoinSet<()>>,
    }

    impl Queue {
        fn ending(outcomes: impl IntoIterator<Item = Outcome>) -> Arc<Self> {
            let outcomes = Mutex::new(outcomes.into_iter().collect());
            Arc::new(Self {
                outcomes,
                ..Self::default()
            })
        }

        fn taken(&self) -> usize {
            self.taken.lock().len()
        }
    }

    #[async_trait]
    impl Consumer for Queue {
        async fn consume(&self, batch: Batch) -> Answer {
            self.taken.lock().push(batch.id);
            let outcome = self.outcomes.lock().pop_front();
            let settle = async move {
                tokio::task::yield_now().await;
                batch
                    .finalizers
                    .settle(outcome.unwrap_or(Outcome::Delivered));
            };
            self.deliveries.lock().spawn(settle);
            Ok(())
        }
    }

    fn queues(named: &[(&str, &Arc<Queue>)]) -> Arc<FanOut> {
        let fan_out = FanOut::new("test", &Meter::default(), None);
        let branch = |(name, queue): &(&str, &Arc<Queue>)| Branch {
            name: (*name).into(),
            target: Target::new(Arc::clone(queue) as Arc<dyn Consumer>, &Calls::default()),
        };
        fan_out.set(named.iter().map(branch).collect());
        fan_out
    }

    fn recorded(id: BatchId) -> Batch {
        let batch = Batch::recorded(batch(1).profiles);
        batch.with_id(id).resent_as_itself()
    }

    /// Pushes it until it has a final outcome.
    async fn push_until_settled(next: &dyn Consumer, id: BatchId) -> (usize, Outcome) {
        let mut pushes = 0;
        loop {
            pushes += 1;
            let (finalizers, outcome) = Finalizers::watched();
            let watched = Batch {
                finalizers,
                ..recorded(id)
            };
            next.consume(watched).await.unwrap();
            let outcome = outcome.await.unwrap();
            if outcome.is_final() {
                return (pushes, outcome);
            }
        }
    }

    #[tokio::test]
    async fn a_batch_that_one_exporter_gave_up_on_goes_only_to_that_one_again() {
        let good = Queue::ending([]);
        let flaky = Queue::ending([Outcome::Undelivered, Outcome::Lost, Outcome::Undelivered]);
        let fan_out = queues(&[("a", &good), ("b", &flaky)]);
        let id = BatchId::unique();
        let pushed = push_until_settled(&*fan_out, id).await;
        assert_eq!(pushed, (4, Outcome::Delivered));
        assert_eq!((good.taken(), flaky.taken()), (1, 4));
        // Each attempt has the same id.
        let ids = flaky.taken.lock().clone();
        assert!(ids.iter().all(|it| *it == ids[0]), "{ids:?}");
        // It is forgotten once all have delivered it.
        assert!(fan_out.resends.is_empty());
        push_until_settled(&*fan_out, id).await;
        assert_eq!((good.taken(), flaky.taken()), (2, 5));
    }

    #[tokio::test]
    async fn who_has_rejected_a_batch_does_not_keep_it_from_another() {
        let picky = Queue::ending([Outcome::Rejected]);
        let flaky = Queue::ending([Outcome::Undelivered]);
        let fan_out = queues(&[("a", &picky), ("b", &flaky)]);
        let pushed = push_until_settled(&*fan_out, BatchId::unique()).await;
        assert_eq!(pushed, (2, Outcome::Rejected));
        assert_eq!((picky.taken(), flaky.taken()), (1, 2));
    }

    #[tokio::test]
    async fn pipelines_before_the_exporters_are_skipped_as_well() {
        let [good, other] = [(); 2].map(|()| Queue::ending([]));
        let flaky = Queue::ending([Outcome::Undelivered; 2]);
        let exporters = queues(&[("a", &good), ("b", &flaky)]);
        let pipelines = FanOut::new("receiver", &Meter::default(), None);
        let branch = |name: &str, next: Arc<dyn Consumer>| Branch {
            name: name.into(),
            target: Target::new(next, &Calls::default()),
        };
        pipelines.set(vec![
            branch("profiles/1", Arc::clone(&exporters) as _),
            branch("profiles/2", Arc::clone(&other) as _),
        ]);
        let pushed = push_until_settled(&*pipelines, BatchId::unique()).await;
        assert_eq!(pushed, (3, Outcome::Delivered));
        let taken = (good.taken(), flaky.taken(), other.taken());
        assert_eq!(taken, (1, 3, 1));
    }

    #[tokio::test]
    async fn a_refusal_after_an_exporter_gave_up_forgets_nothing() {
        let good = Queue::ending([]);
        let flaky = Queue::ending([Outcome::Undelivered]);
        let fan_out = queues(&[("a", &good), ("b", &flaky)]);
        let id = BatchId::unique();
        let pushed = |finalizers| Batch {
            finalizers,
            ..recorded(id)
        };
        let (finalizers, outcome) = Finalizers::watched();
        fan_out.consume(pushed(finalizers)).await.unwrap();
        assert_eq!(outcome.await, Ok(Outcome::Undelivered));
        let dead = full(1);
        fan_out.set(vec![
            queues(&[("a", &good)]).branches.read()[0].clone(),
            branches([("b", &dead)]).remove(0),
        ]);
        let (finalizers, _) = Finalizers::watched();
        let (handed, attempt) = finalizers.attempt();
        fan_out.consume(pushed(handed)).await.unwrap_err();
        let (handed, attempt) = attempt.refused().attempt();
        fan_out.consume(pushed(handed)).await.unwrap();
        attempt.accepted();
        assert_eq!((good.taken(), dead.accepted()), (1, vec![1]));
    }

    #[tokio::test(start_paused = true)]
    async fn remembers_answers_when_the_caller_hangs_up() {
        let slow = Arc::new(Sink::default().taking(Duration::from_secs(10)));
        let good = Arc::new(Sink::default());
        let fan_out = fan_out(&[&good, &slow]);
        let id = BatchId::unique();
        let hung_up = fan_out.consume(batch(2).with_resend_id(id));
        let _ = tokio::time::timeout(Duration::from_secs(5), hung_up).await;
        fan_out.consume(batch(2).with_resend_id(id)).await.unwrap();
        assert_eq!((good.accepted(), slow.accepted()), (vec![2], vec![2]));
    }

    #[tokio::test(start_paused = true)]
    async fn evicts_a_batch_that_is_not_resent() {
        let (good, dead) = (Arc::new(Sink::default()), full(1));
        let fan_out = fan_out(&[&good, &dead]);
        let id = BatchId::unique();
        let _ = fan_out.consume(batch(1).with_resend_id(id)).await;
        tokio::time::advance(RESEND_WINDOW).await;
        fan_out.consume(batch(1).with_resend_id(id)).await.unwrap();
        assert_eq!(good.accepted(), [1, 1]);
    }
}
