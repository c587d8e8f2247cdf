//! One batch to several consumers, without copying it.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::join_all;
use profcol_component::{
    Answer, Attempt, Batch, BatchId, Consumer, Finalizers, IntCounter, Meter, Outcome, Refusal,
};
use tokio::time::Instant;

/// Hands each consumer its own reference to the batch, all at once, so that one that makes its
/// caller wait delays no other.
///
/// The answer is the worst of all. Where one consumer asks to retry, the source sends the batch
/// again; those that answered for it the first time are remembered and not given it a second time.
pub(crate) struct FanOut {
    consumers: Vec<Arc<dyn Consumer>>,
    partial: Mutex<VecDeque<Partial>>,
    forgotten: IntCounter,
}

/// A batch that some consumers have answered for and others refused for now.
struct Partial {
    id: BatchId,
    since: Instant,
    answered: Vec<Option<Answered>>,
}

/// What a consumer said that need not be asked again.
struct Answered {
    answer: Answer,
    attempt: Attempt,
}

/// Collects the answers for one batch. Where the caller goes away before all are there, those that
/// are there are remembered all the same.
struct PendingAnswers<'a> {
    fan_out: &'a FanOut,
    id: BatchId,
    answered: Mutex<Vec<Option<Answered>>>,
}

/// How long a batch that came only partly through is remembered: as long as clients retry by
/// default (`max_elapsed_time` of the Collector's exporters).
const RESEND_WINDOW: Duration = Duration::from_secs(300);

/// How many batches are remembered. A client holds one for each of its `num_consumers` (10 by
/// default), so that these are a hundred clients whose every request is being refused.
const MAX_PARTIAL: usize = 1024;

impl FanOut {
    /// One consumer needs no fan-out. `name` is whose fan-out it is.
    pub(crate) fn to(
        mut consumers: Vec<Arc<dyn Consumer>>,
        name: &str,
        meter: &Meter,
    ) -> Arc<dyn Consumer> {
        match consumers.len() {
            1 => consumers.remove(0),
            _ => Arc::new(Self {
                consumers,
                partial: Mutex::default(),
                forgotten: meter.counter(
                    "profcol_fanout_forgotten_batches",
                    "Partially accepted batches evicted from the cache; a resend of one is delivered twice.",
                    &[("fanout", name)],
                ),
            }),
        }
    }

    /// The answers that are known for a batch which is sent again.
    fn known_answers(&self, id: BatchId) -> Vec<Option<Answered>> {
        let mut partial = lock(&self.partial);
        partial.retain(|batch| batch.since.elapsed() < RESEND_WINDOW);
        let position = partial.iter().position(|batch| batch.id == id);
        match position.and_then(|position| partial.remove(position)) {
            Some(batch) => batch.answered,
            None => self.consumers.iter().map(|_| None).collect(),
        }
    }

    fn remember(&self, id: BatchId, answered: Vec<Option<Answered>>) {
        let mut partial = lock(&self.partial);
        if partial.len() == MAX_PARTIAL {
            partial.pop_front();
            self.forgotten.inc();
        }
        partial.push_back(Partial {
            id,
            since: Instant::now(),
            answered,
        });
    }

    async fn push_once(&self, batch: Batch) -> Answer {
        let answers = self
            .consumers
            .iter()
            .map(|consumer| consumer.consume(batch.clone()));
        let answers = join_all(answers).await;
        batch.finalizers.settle(Outcome::Delivered);
        worst(answers)
    }
}

#[async_trait]
impl Consumer for FanOut {
    async fn consume(&self, mut batch: Batch) -> Answer {
        let Some(id) = batch.id else {
            return self.push_once(batch).await;
        };
        let finalizers = std::mem::take(&mut batch.finalizers);
        let asking = PendingAnswers {
            fan_out: self,
            id,
            answered: Mutex::new(self.known_answers(id)),
        };
        let answers = (self.consumers.iter().enumerate())
            .map(|(position, consumer)| asking.ask(position, &**consumer, &batch, &finalizers));
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

impl PendingAnswers<'_> {
    /// Asks a consumer that has not answered yet; returns its refusal if it may take the batch later.
    async fn ask(
        &self,
        position: usize,
        consumer: &dyn Consumer,
        batch: &Batch,
        finalizers: &Finalizers,
    ) -> Option<Refusal> {
        let waiting = finalizers.clone();
        if let Some(Some(known)) = lock(&self.answered).get(position) {
            known.attempt.adopt(waiting);
            return None;
        }
        let (handed, attempt) = waiting.attempt();
        let copy = Batch {
            finalizers: handed,
            ..batch.clone()
        };
        match consumer.consume(copy).await {
            Err(refusal) if refusal.is_retryable() => {
                attempt.refused().settle(refusal.outcome());
                Some(refusal)
            }
            answer => {
                if let Some(place) = lock(&self.answered).get_mut(position) {
                    *place = Some(Answered { answer, attempt });
                }
                None
            }
        }
    }

    /// All have answered: those who wait for the batch wait for its copies now.
    fn complete(&self) -> Answer {
        let answered = std::mem::take(&mut *lock(&self.answered));
        worst(answered.into_iter().flatten().map(|known| {
            known.attempt.accepted();
            known.answer
        }))
    }
}

impl Drop for PendingAnswers<'_> {
    fn drop(&mut self) {
        let answered = std::mem::take(&mut *lock(&self.answered));
        let mut took = answered.iter().flatten().peekable();
        if took.peek().is_none() {
            return;
        }
        for known in took {
            // The source still holds the batch, and waits for the outcome of its next try.
            known.attempt.release().settle(Outcome::Undelivered);
        }
        self.fan_out.remember(self.id, answered);
    }
}

/// The answer that the sender of a batch has to act on.
fn worst(answers: impl IntoIterator<Item = Answer>) -> Answer {
    let refusals = answers.into_iter().filter_map(Result::err);
    refusals.reduce(Refusal::prevailing).map_or(Ok(()), Err)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use profcol_component::testkit::{Sink, batch, batch_with_outcomes};

    use super::*;

    fn fan_out(sinks: &[&Arc<Sink>]) -> Arc<dyn Consumer> {
        let consumers = sinks
            .iter()
            .map(|sink| Arc::clone(sink) as Arc<dyn Consumer>);
        FanOut::to(consumers.collect(), "test", &Meter::default())
    }

    fn full(times: usize) -> Arc<Sink> {
        Arc::new(Sink::refusing(
            (0..times).map(|_| Refusal::retry("sending queue is full")),
        ))
    }

    #[tokio::test]
    async fn a_batch_sent_again_reaches_only_those_that_refused_it() {
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
    async fn equal_batches_of_two_clients_both_arrive() {
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
    async fn a_waiter_gets_the_outcome_of_the_first_accepted_copy() {
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
    async fn remembers_what_was_taken_when_the_caller_hangs_up() {
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
    async fn forgets_a_batch_that_nobody_sends_again() {
        let (good, dead) = (Arc::new(Sink::default()), full(1));
        let fan_out = fan_out(&[&good, &dead]);
        let id = BatchId::unique();
        let _ = fan_out.consume(batch(1).with_id(id)).await;
        tokio::time::advance(RESEND_WINDOW).await;
        fan_out.consume(batch(1).with_id(id)).await.unwrap();
        assert_eq!(good.accepted(), [1, 1]);
    }
}
