//! Takes each batch once, by its id.
//!
//! ```text
//!                ┌─ new ──────────────► pipelines ──► answer; if it is success, the id is remembered
//! batch with id ─┼─ being delivered ──► waits for that answer
//!                └─ accepted before ──► success
//! ```

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use profcol_component::{Answer, BatchId, BuildContext, IntCounter, Refusal};
use profcol_config::Problems;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout_at};

/// Which accepted batches are remembered.
#[derive(Clone, Debug, Deserialize, JsonSchema, Serialize)]
#[serde(default)]
pub struct DeduplicateConfig {
    /// How long the id of an accepted batch is remembered. Clients should not retry for longer.
    pub window: profcol_config::Duration,
    /// Maximum number of remembered ids, 100 bytes each; the oldest is evicted first, and counted.
    pub max_batches: usize,
}

pub struct Deduplicator {
    memory: Arc<Memory>,
    /// They outlive their connections.
    deliveries: Mutex<JoinSet<()>>,
    duplicates: IntCounter,
}

struct Memory {
    window: Duration,
    max_batches: usize,
    state: Mutex<State>,
    forgotten: IntCounter,
}

#[derive(Default)]
struct State {
    in_delivery: HashMap<BatchId, PendingAnswer>,
    accepted: HashSet<BatchId>,
    /// The accepted ones, oldest first.
    order: VecDeque<(BatchId, Instant)>,
}

/// `None` until there is an answer; closed without one if the delivery panicked or was aborted.
type PendingAnswer = watch::Receiver<Option<Answer>>;

/// What is known about a batch.
enum Seen {
    Accepted,
    InDelivery(PendingAnswer),
    Never(Delivery, PendingAnswer),
}

/// The first delivery of a batch, or the first after a refusal.
struct Delivery {
    id: BatchId,
    memory: Arc<Memory>,
    answer: watch::Sender<Option<Answer>>,
}

// === impl DeduplicateConfig ===

impl Default for DeduplicateConfig {
    fn default() -> Self {
        Self {
            window: profcol_config::Duration::from_secs(300),
            max_batches: 10_000,
        }
    }
}

impl DeduplicateConfig {
    pub fn validate(&self, problems: &mut Problems) {
        if self.window <= profcol_config::Duration::ZERO {
            problems.add("window", "must be positive");
        }
        if self.max_batches == 0 {
            problems.add("max_batches", "must be positive");
        }
    }
}

// === impl Deduplicator ===

impl Deduplicator {
    pub fn new(config: &DeduplicateConfig, context: &BuildContext) -> Self {
        let id = context.id.to_string();
        let counter = |name, help| context.meter.counter(name, help, &[("receiver", &id)]);
        Self {
            memory: Arc::new(Memory {
                window: config.window.into(),
                max_batches: config.max_batches,
                state: Mutex::default(),
                forgotten: counter(
                    "profcol_receiver_forgotten_batch_ids",
                    "Ids of accepted batches forgotten before the end of the window; a duplicate of one is passed on.",
                ),
            }),
            deliveries: Mutex::default(),
            duplicates: counter(
                "profcol_receiver_duplicate_profile_samples",
                "Samples of batches that were accepted before, answered with success and not passed on.",
            ),
        }
    }

    /// Delivers the batch, unless one with its id was delivered or is being so.
    pub async fn once(
        &self,
        id: BatchId,
        samples: u64,
        deliver: impl Future<Output = Answer> + Send + 'static,
    ) -> Answer {
        let mut is_duplicate = true;
        let answer = match self.memory.look_up(id)? {
            Seen::Accepted => Ok(()),
            Seen::InDelivery(pending) => answer_of(pending).await,
            Seen::Never(delivery, pending) => {
                is_duplicate = false;
                self.start(async move { delivery.end(deliver.await) });
                answer_of(pending).await
            }
        };
        if is_duplicate && answer.is_ok() {
            self.duplicates.inc_by(samples);
            tracing::debug!(%id, samples, "Dropped a batch that was accepted before.");
        }
        answer
    }

    fn start(&self, delivery: impl Future<Output = ()> + Send + 'static) {
        let mut deliveries = self.deliveries.lock();
        while deliveries.try_join_next().is_some() {}
        deliveries.spawn(delivery);
    }

    /// Waits for the deliveries that are left, and aborts them at the deadline. Call once there are no more requests.
    pub async fn finish(&self, deadline: Instant) {
        let mut deliveries = std::mem::take(&mut *self.deliveries.lock());
        let ended = async { while deliveries.join_next().await.is_some() {} };
        let _ = timeout_at(deadline, ended).await;
    }
}

async fn answer_of(mut pending: PendingAnswer) -> Answer {
    let answered = pending.wait_for(Option::is_some).await;
    let answer = answered.ok().and_then(|answer| answer.clone());
    answer.unwrap_or_else(|| Err(Refusal::retry("the delivery ended without an answer")))
}

// === impl Memory ===

impl Memory {
    /// The state, after removing the batches whose time is over.
    fn current(&self) -> MutexGuard<'_, State> {
        let mut state = self.state.lock();
        state.forget_before(Instant::now().checked_sub(self.window));
        state
    }

    fn look_up(self: &Arc<Self>, id: BatchId) -> Result<Seen, Refusal> {
        let mut state = self.current();
        if state.accepted.contains(&id) {
            return Ok(Seen::Accepted);
        }
        if let Some(pending) = state.in_delivery.get(&id) {
            return Ok(Seen::InDelivery(pending.clone()));
        }
        // Clients that disconnect leave deliveries behind.
        if state.in_delivery.len() >= self.max_batches {
            return Err(Refusal::retry("too many batches are being delivered"));
        }
        let (answer, pending) = watch::channel(None);
        state.in_delivery.insert(id, pending.clone());
        let memory = Arc::clone(self);
        let delivery = Delivery { id, memory, answer };
        Ok(Seen::Never(delivery, pending))
    }
}

// === impl State ===

impl State {
    fn forget_before(&mut self, end: Option<Instant>) {
        while let Some((id, at)) = self.order.front()
            && end.is_some_and(|end| *at <= end)
        {
            self.accepted.remove(id);
            self.order.pop_front();
        }
    }

    fn accept(&mut self, id: BatchId) {
        self.accepted.insert(id);
        self.order.push_back((id, Instant::now()));
    }

    /// Returns whether there was one.
    fn forget_oldest(&mut self) -> bool {
        let oldest = self.order.pop_front();
        oldest.is_some_and(|(id, _)| self.accepted.remove(&id))
    }
}

// === impl Delivery ===

impl Delivery {
    fn end(self, answer: Answer) {
        if answer.is_ok() {
            let mut state = self.memory.current();
            if state.accepted.len() >= self.memory.max_batches && state.forget_oldest() {
                self.memory.forgotten.inc();
            }
            state.accept(self.id);
        }
        self.answer.send_replace(Some(answer));
    }
}

impl Drop for Delivery {
    fn drop(&mut self) {
        self.memory.state.lock().in_delivery.remove(&self.id);
    }
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};

    use profcol_component::testkit::context;
    use tokio::sync::oneshot;

    use super::*;

    struct Fixture {
        deduplicator: Deduplicator,
        context: BuildContext,
    }

    impl Fixture {
        fn new(config: &DeduplicateConfig) -> Self {
            let context = context("otlp");
            Self {
                deduplicator: Deduplicator::new(config, &context),
                context,
            }
        }

        /// Whether the batch is passed on.
        async fn passes_on(&self, id: BatchId) -> bool {
            let (passed, mut was_passed) = oneshot::channel();
            let deliver = async move {
                passed.send(()).unwrap();
                Ok(())
            };
            self.deduplicator.once(id, 3, deliver).await.unwrap();
            was_passed.try_recv().is_ok()
        }

        fn count(&self, name: &str) -> u64 {
            let meter = &self.context.meter;
            meter.counter(name, "", &[("receiver", "otlp")]).get()
        }
    }

    fn of_at_most(max_batches: usize) -> DeduplicateConfig {
        DeduplicateConfig {
            max_batches,
            ..DeduplicateConfig::default()
        }
    }

    #[tokio::test]
    async fn an_accepted_batch_is_not_passed_on_again() {
        let rig = Fixture::new(&DeduplicateConfig::default());
        let id = BatchId::unique();
        assert!(rig.passes_on(id).await);
        assert!(rig.passes_on(BatchId::unique()).await);
        assert!(!rig.passes_on(id).await);
        assert_eq!(rig.count("profcol_receiver_duplicate_profile_samples"), 3);
    }

    #[tokio::test]
    async fn a_refused_batch_may_be_sent_again() {
        let rig = Fixture::new(&DeduplicateConfig::default());
        let id = BatchId::unique();
        for refusal in [Refusal::retry("full"), Refusal::permanent("bad")] {
            let answer = ready(Err(refusal.clone()));
            assert_eq!(rig.deduplicator.once(id, 1, answer).await, Err(refusal));
        }
        assert!(rig.passes_on(id).await);
    }

    #[tokio::test]
    async fn concurrent_duplicates_get_the_answer_of_the_first() {
        let rig = Fixture::new(&DeduplicateConfig::default());
        let id = BatchId::unique();
        for expected in [Err(Refusal::retry("full")), Ok(())] {
            let (answer, answered) = oneshot::channel();
            let first = rig
                .deduplicator
                .once(id, 3, async { answered.await.unwrap() });
            // It would never get an answer of its own.
            let second = rig.deduplicator.once(id, 3, pending());
            let end = async {
                answer.send(expected.clone()).unwrap();
            };
            let (first, second, ()) = tokio::join!(first, second, end);
            assert_eq!((&first, &second), (&expected, &expected));
        }
        assert_eq!(rig.count("profcol_receiver_duplicate_profile_samples"), 3);
    }

    #[tokio::test(start_paused = true)]
    async fn a_delivery_continues_without_its_client_and_at_the_end() {
        let rig = Fixture::new(&DeduplicateConfig::default());
        let id = BatchId::unique();
        let slow = async {
            tokio::time::sleep(Duration::from_secs(10)).await;
            Ok(())
        };
        let first = rig.deduplicator.once(id, 3, slow);
        let gone = tokio::time::timeout(Duration::from_secs(5), first).await;
        assert!(gone.is_err());
        let deadline = Instant::now() + Duration::from_secs(100);
        rig.deduplicator.finish(deadline).await;
        assert!(!rig.passes_on(id).await);
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_aborted_at_the_end_was_not_accepted() {
        let rig = Fixture::new(&DeduplicateConfig::default());
        let id = BatchId::unique();
        let first = rig.deduplicator.once(id, 3, pending());
        let finish = rig
            .deduplicator
            .finish(Instant::now() + Duration::from_secs(1));
        let (answer, ()) = tokio::join!(first, finish);
        assert!(answer.unwrap_err().is_retryable());
        assert!(rig.passes_on(id).await);
    }

    #[tokio::test]
    async fn the_oldest_id_leaves_first() {
        let rig = Fixture::new(&of_at_most(2));
        let ids = [(); 3].map(|()| BatchId::unique());
        for id in ids {
            assert!(rig.passes_on(id).await);
        }
        assert_eq!(rig.count("profcol_receiver_forgotten_batch_ids"), 1);
        assert!(!rig.passes_on(ids[2]).await);
        assert!(!rig.passes_on(ids[1]).await);
        assert!(rig.passes_on(ids[0]).await);
    }

    #[tokio::test(start_paused = true)]
    async fn an_id_is_forgotten_after_the_window() {
        let rig = Fixture::new(&DeduplicateConfig {
            window: profcol_config::Duration::from_secs(10),
            ..DeduplicateConfig::default()
        });
        let id = BatchId::unique();
        assert!(rig.passes_on(id).await);
        tokio::time::advance(Duration::from_secs(9)).await;
        assert!(!rig.passes_on(id).await);
        tokio::time::advance(Duration::from_secs(1)).await;
        assert!(rig.passes_on(id).await);
        assert_eq!(rig.count("profcol_receiver_forgotten_batch_ids"), 0);
    }

    #[tokio::test]
    async fn the_number_of_deliveries_is_bounded() {
        let rig = Fixture::new(&of_at_most(1));
        let first = rig.deduplicator.once(BatchId::unique(), 1, pending());
        let second = async {
            let second = rig.deduplicator.once(BatchId::unique(), 1, ready(Ok(())));
            assert!(second.await.unwrap_err().is_retryable());
        };
        tokio::select! {
            biased;
            _ = first => panic!("it has no end"),
            () = second => {}
        }
    }
}
