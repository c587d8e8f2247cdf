//! Scripted consumers on the paused clock: when a batch is sent, merged, split or retried, and which senders wait.

use std::time::Duration;

use parking_lot::Mutex;
use profcol_component::testkit::{Sink, batch, batch_with_outcomes, context};
use profcol_component::{BatchId, Finalizers, Outcome, Refusal};
use profcol_config::{Config, Duration as ConfigDuration, Problems};
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::source_queue::OUTBOX_LIMIT;
use super::*;

/// A running processor in front of a sink.
struct Fixture {
    sink: Arc<Sink>,
    processor: Arc<dyn Processor>,
    stop: Stop,
    tasks: JoinSet<Result<(), RunError>>,
}

impl Fixture {
    fn new(config: &BatchConfig, sink: Sink) -> Self {
        let (sink, stop) = (Arc::new(sink), Stop::new());
        let processor: Arc<dyn Processor> = BatchProcessor::build(config, &context("batch"))
            .unwrap()
            .into();
        let mut tasks = JoinSet::new();
        let next = Arc::clone(&sink) as Arc<dyn Consumer>;
        tasks.spawn(Arc::clone(&processor).run(next, stop.clone()));
        Self {
            sink,
            processor,
            stop,
            tasks,
        }
    }

    async fn push(&self, batch: Batch) -> Answer {
        self.processor.process(batch, &*self.sink).await
    }

    async fn finish(mut self) -> Arc<Sink> {
        self.stop.cancel();
        while let Some(ended) = self.tasks.join_next().await {
            ended.unwrap().unwrap();
        }
        self.sink
    }
}

fn config(size: u32, max: u32, timeout_ms: i64) -> BatchConfig {
    BatchConfig {
        timeout: ConfigDuration::from_millis(timeout_ms),
        send_batch_size: size,
        send_batch_max_size: max,
        ..BatchConfig::default()
    }
}

#[tokio::test(start_paused = true)]
async fn sends_when_the_size_is_reached() {
    let rig = Fixture::new(&config(10, 0, 1000), Sink::default());
    for _ in 0..5 {
        rig.push(batch(3)).await.unwrap();
    }
    tokio::time::sleep(Duration::from_millis(1)).await;
    assert_eq!(rig.sink.accepted(), [12]);
    assert_eq!(rig.finish().await.accepted(), [12, 3]);
}

#[tokio::test(start_paused = true)]
async fn sends_when_the_timeout_expires() {
    let rig = Fixture::new(&config(1000, 0, 200), Sink::default());
    let (first, outcomes) = batch_with_outcomes(3);
    rig.push(first).await.unwrap();
    tokio::time::sleep(Duration::from_millis(150)).await;
    rig.push(batch(4)).await.unwrap();
    assert_eq!(rig.sink.offered(), 0);
    tokio::time::sleep(Duration::from_millis(60)).await;
    assert_eq!(rig.sink.accepted(), [7]);
    assert_eq!(outcomes.seen(), [Outcome::Delivered]);
    rig.finish().await;
}

#[tokio::test(start_paused = true)]
async fn splits_large_batches() {
    let rig = Fixture::new(&config(4, 4, 1000), Sink::default());
    let (large, outcomes) = batch_with_outcomes(10);
    rig.push(large).await.unwrap();
    assert_eq!(rig.finish().await.accepted(), [4, 4, 2]);
    assert_eq!(outcomes.seen(), [Outcome::Delivered]);
}

#[tokio::test(start_paused = true)]
async fn retries_refused_batches() {
    let down = || Refusal::retry_after("down", Duration::from_secs(1));
    let rig = Fixture::new(&config(0, 0, 100), Sink::refusing([down(), down()]));
    let (first, outcomes) = batch_with_outcomes(5);
    rig.push(first).await.unwrap();
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert_eq!(rig.sink.offered(), 1);
    assert!(outcomes.seen().is_empty());
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(rig.sink.accepted(), [5]);
    assert_eq!(outcomes.seen(), [Outcome::Delivered]);
    rig.finish().await;
}

#[tokio::test(start_paused = true)]
async fn refuses_new_batches_while_the_next_consumer_refuses() {
    let down = Refusal::retry_after("down", Duration::from_secs(60));
    let rig = Fixture::new(&config(1, 0, 100), Sink::refusing([down]));
    for _ in 0..OUTBOX_LIMIT {
        rig.push(batch(1)).await.unwrap();
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let (refused, outcomes) = batch_with_outcomes(1);
    assert!(rig.push(refused).await.unwrap_err().is_retryable());
    assert_eq!(outcomes.seen(), [Outcome::Undelivered]);
    // The stop tries once more, in order.
    assert_eq!(rig.finish().await.accepted(), [1; OUTBOX_LIMIT]);
}

#[tokio::test(start_paused = true)]
async fn senders_wait_while_the_next_consumer_is_slow() {
    let rig = Fixture::new(
        &config(1, 0, 100),
        Sink::default().taking(Duration::from_secs(1)),
    );
    let began = Instant::now();
    for _ in 0..OUTBOX_LIMIT + 3 {
        rig.push(batch(1)).await.unwrap();
    }
    assert!(
        began.elapsed() >= Duration::from_secs(1),
        "{:?}",
        began.elapsed()
    );
    assert_eq!(rig.finish().await.accepted().len(), OUTBOX_LIMIT + 3);
}

#[tokio::test(start_paused = true)]
async fn a_sender_that_hangs_up_loses_nothing() {
    let rig = Fixture::new(
        &config(3, 0, 100),
        Sink::default().taking(Duration::from_secs(5)),
    );
    rig.push(batch(2)).await.unwrap();
    {
        let hanging_up = rig.push(batch(1));
        tokio::select! {
            biased;
            _ = hanging_up => {}
            () = std::future::ready(()) => {}
        }
    }
    assert_eq!(rig.finish().await.accepted(), [3]);
}

#[tokio::test(start_paused = true)]
async fn permanently_refused_batches_are_dropped_and_reported() {
    let rig = Fixture::new(
        &config(1, 0, 100),
        Sink::refusing([Refusal::permanent("bad")]),
    );
    let (bad, outcomes) = batch_with_outcomes(2);
    rig.push(bad).await.unwrap();
    rig.push(batch(3)).await.unwrap();
    assert_eq!(rig.finish().await.accepted(), [3]);
    assert_eq!(outcomes.seen(), [Outcome::Rejected]);
}

#[tokio::test(start_paused = true)]
async fn separates_clients_by_metadata() {
    let mut config = config(100, 0, 100);
    config.metadata_keys = vec!["Tenant".to_owned()];
    config.metadata_cardinality_limit = 2;
    let rig = Fixture::new(&config, Sink::default());
    let of = |tenant: &str, samples| {
        let mut metadata = profcol_component::Metadata::default();
        metadata.add("tenant", tenant);
        metadata.add("other", "x");
        batch(samples).with_metadata(metadata)
    };
    rig.push(of("a", 1)).await.unwrap();
    rig.push(of("b", 2)).await.unwrap();
    rig.push(of("a", 4)).await.unwrap();
    let refusal = rig.push(of("c", 8)).await.unwrap_err();
    assert_eq!(
        refusal,
        Refusal::permanent("too many batcher metadata-value combinations")
    );
    let mut accepted = rig.finish().await.accepted();
    accepted.sort_unstable();
    assert_eq!(accepted, [2, 5]);
}

#[test]
fn validates_the_options() {
    let mut config = config(10, 5, -1);
    config.metadata_keys = vec!["tenant".to_owned(), "Tenant".to_owned()];
    let mut problems = Problems::default();
    Config::validate(&config, &mut problems);
    assert_eq!(
        problems.to_string(),
        "timeout: timeout must be greater or equal to 0\n\
         send_batch_max_size: send_batch_max_size must be greater or equal to send_batch_size\n\
         metadata_keys: duplicate entry in metadata_keys: \"Tenant\""
    );
}

/// Accepts live batches, and never answers for others.
struct StuckForClients(Sink);

#[async_trait]
impl Consumer for StuckForClients {
    async fn consume(&self, batch: Batch) -> Answer {
        if batch.source == Source::Replayable {
            std::future::pending::<()>().await;
        }
        self.0.consume(batch).await
    }
}

#[tokio::test(start_paused = true)]
async fn a_waiting_client_does_not_delay_live_sources() {
    let processor = BatchProcessor::build(&config(1, 0, 100), &context("batch")).unwrap();
    let processor: Arc<dyn Processor> = processor.into();
    let next = Arc::new(StuckForClients(Sink::default()));
    let mut tasks = JoinSet::new();
    tasks.spawn(Arc::clone(&processor).run(Arc::clone(&next) as Arc<dyn Consumer>, Stop::new()));
    processor.process(batch(7), &*next).await.unwrap();
    for _ in 0..20 {
        let live = Batch::live(batch(2).profiles);
        processor.process(live, &*next).await.unwrap();
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    assert_eq!(next.0.accepted(), [2; 20]);
    // Without this, the stuck batch would be lost at the end.
    tasks.shutdown().await;
    assert_eq!(processor.lost_samples(), 7);
}

#[tokio::test(start_paused = true)]
async fn a_merged_batch_keeps_its_id_across_retries() {
    #[derive(Default)]
    struct Refusing(Mutex<Vec<Option<BatchId>>>);
    #[async_trait]
    impl Consumer for Refusing {
        async fn consume(&self, batch: Batch) -> Answer {
            let id = batch.resend_id;
            self.0.lock().push(id);
            batch.refuse(Refusal::retry("down"))
        }
    }
    let processor = BatchProcessor::build(&config(4, 0, 100), &context("batch")).unwrap();
    let processor: Arc<dyn Processor> = processor.into();
    let next = Arc::new(Refusing::default());
    let mut tasks = JoinSet::new();
    tasks.spawn(Arc::clone(&processor).run(Arc::clone(&next) as Arc<dyn Consumer>, Stop::new()));
    for _ in 0..2 {
        processor.process(batch(2), &*next).await.unwrap();
    }
    tokio::time::sleep(Duration::from_secs(1)).await;
    let ids = next.0.lock();
    assert!(ids.len() > 1);
    assert!(
        ids[0].is_some() && ids.iter().all(|id| *id == ids[0]),
        "{ids:?}"
    );
}

/// Accepts each batch, with the next of these outcomes, then delivers.
#[derive(Default)]
struct Queue {
    outcomes: Mutex<Vec<Outcome>>,
    /// The ids and sizes of all batches.
    taken: Mutex<Vec<(BatchId, usize)>>,
}

#[async_trait]
impl Consumer for Queue {
    async fn consume(&self, batch: Batch) -> Answer {
        let id = batch.resend_id.unwrap();
        self.taken.lock().push((id, batch.profiles.sample_count()));
        let mut outcomes = self.outcomes.lock();
        let outcome = match outcomes.is_empty() {
            true => Outcome::Delivered,
            false => outcomes.remove(0),
        };
        batch.finalizers.settle(outcome);
        Ok(())
    }
}

/// Recordings through a processor to a queue.
struct Recordings {
    processor: Arc<dyn Processor>,
    queue: Arc<Queue>,
    context: BuildContext,
    _tasks: JoinSet<Result<(), RunError>>,
}

impl Recordings {
    fn new(config: &BatchConfig, outcomes: &[Outcome]) -> Self {
        let context = context("batch");
        let queue = Arc::new(Queue {
            outcomes: Mutex::new(outcomes.to_vec()),
            ..Queue::default()
        });
        let processor = BatchProcessor::build(config, &context).unwrap();
        let processor: Arc<dyn Processor> = processor.into();
        let mut tasks = JoinSet::new();
        let next = Arc::clone(&queue) as Arc<dyn Consumer>;
        tasks.spawn(Arc::clone(&processor).run(next, Stop::new()));
        Self {
            processor,
            queue,
            context,
            _tasks: tasks,
        }
    }

    /// Pushes a copy, and returns its outcome later.
    async fn push(&self, recording: &Batch) -> oneshot::Receiver<Outcome> {
        let (finalizers, outcome) = Finalizers::watched();
        let copy = Batch {
            finalizers,
            ..recording.detached()
        };
        self.processor.process(copy, &*self.queue).await.unwrap();
        outcome
    }

    fn taken(&self) -> Vec<(BatchId, usize)> {
        std::mem::take(&mut *self.queue.taken.lock())
    }

    fn forgotten(&self) -> u64 {
        let name = "profcol_processor_batch_forgotten_batches";
        let labels = [("processor", "batch")];
        self.context.meter.counter(name, "", &labels).get()
    }
}

fn recording(samples: usize) -> Batch {
    Batch::recorded(batch(samples).profiles)
}

#[tokio::test(start_paused = true)]
async fn recordings_that_come_again_bring_back_what_they_were_merged_into() {
    let rig = Recordings::new(
        &config(5, 0, 60_000),
        &[Outcome::Undelivered, Outcome::Lost],
    );
    let (a, b, c) = (recording(2), recording(3), recording(1));
    let outcomes = (rig.push(&a).await, rig.push(&b).await);
    assert_eq!(outcomes.0.await, Ok(Outcome::Undelivered));
    assert_eq!(outcomes.1.await, Ok(Outcome::Undelivered));
    let first = rig.taken();
    assert_eq!(first.len(), 1);
    // It waits for others, and is not merged with those.
    let other = rig.push(&c).await;
    // The second comes first, and alone.
    assert_eq!(rig.push(&b).await.await, Ok(Outcome::Lost));
    assert_eq!(rig.taken(), first);
    assert_eq!(rig.push(&a).await.await, Ok(Outcome::Delivered));
    assert_eq!(rig.taken(), first);
    // It has been delivered with the other.
    assert_eq!(rig.push(&b).await.await, Ok(Outcome::Delivered));
    assert_eq!(rig.taken(), []);
    let full = rig.push(&recording(4)).await;
    assert_eq!(full.await, Ok(Outcome::Delivered));
    assert_eq!(other.await, Ok(Outcome::Delivered));
    assert_eq!(rig.taken().iter().map(|it| it.1).sum::<usize>(), 5);
    assert_eq!(rig.forgotten(), 0);
}

#[tokio::test(start_paused = true)]
async fn of_a_split_recording_only_what_was_given_up_comes_again() {
    let outcomes = [Outcome::Delivered, Outcome::Undelivered, Outcome::Rejected];
    let rig = Recordings::new(&config(1, 2, 60_000), &outcomes);
    let a = recording(6);
    assert_eq!(rig.push(&a).await.await, Ok(Outcome::Undelivered));
    let pieces = rig.taken();
    assert_eq!(pieces.len(), 3);
    // A destination has rejected the third, which is only told once there is nothing left to send.
    assert_eq!(rig.push(&a).await.await, Ok(Outcome::Rejected));
    assert_eq!(rig.taken(), pieces[1..2]);
}

#[tokio::test(start_paused = true)]
async fn a_recording_whose_source_is_gone_is_forgotten_and_counted() {
    let rig = Recordings::new(&config(1, 0, 60_000), &[Outcome::Undelivered; 3]);
    let (a, b) = (recording(1), recording(2));
    assert_eq!(rig.push(&a).await.await, Ok(Outcome::Undelivered));
    tokio::time::advance(Duration::from_secs(300)).await;
    assert_eq!(rig.push(&b).await.await, Ok(Outcome::Undelivered));
    assert_eq!(rig.forgotten(), 1);
    // It is a new one.
    assert_eq!(rig.push(&a).await.await, Ok(Outcome::Undelivered));
    assert_eq!(rig.push(&a).await.await, Ok(Outcome::Delivered));
}
