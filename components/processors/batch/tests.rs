//! Scripted consumers on the paused clock: when a batch is sent, merged, split or retried, and which senders wait.

use std::time::Duration;

use profcol_component::testkit::{Sink, batch, batch_with_outcomes, context};
use profcol_component::{Outcome, Refusal};
use profcol_config::{Config, Duration as ConfigDuration, Problems};
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::lane::OUTBOX_LIMIT;
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
    struct Refusing(parking_lot::Mutex<Vec<Option<profcol_component::BatchId>>>);
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
