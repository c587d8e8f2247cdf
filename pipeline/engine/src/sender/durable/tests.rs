//! A queue stored in a temporary folder, over restarts: each batch arrives once and in order, or counts as dropped.

mod power_loss;
mod shared_bodies;

use std::path::Path;

use profcol_component::testkit::{Sink, batch, batch_with_outcomes, wait_until};
use profcol_component::{
    Consumer, Delivery, DeliverySettings, Exporter, Metadata, Meter, QueueBatchSettings,
    RetrySettings, Taps,
};
use profcol_storage::{FsyncPolicy, StorageOptions, WhenFull};
use tokio::task::JoinSet;

use super::super::tests::{closing, unread_status};
use super::*;
use crate::sender::ExporterBalance;

/// A running sender with a stored queue for `sink`.
struct Fixture {
    sink: Arc<Sink>,
    sender: Arc<Sender>,
    tasks: JoinSet<()>,
}

impl Fixture {
    async fn start(folder: &Path, sink: Sink) -> Self {
        Self::with(folder, sink, 16 << 20, WhenFull::Block).await
    }

    async fn with(folder: &Path, sink: Sink, max_bytes: u64, when_full: WhenFull) -> Self {
        let storage = Storage::new(StorageOptions {
            directory: folder.to_owned(),
            create_directory: true,
            fsync: FsyncPolicy::Always,
            max_bytes,
            when_full,
        });
        storage.lock().unwrap();
        Self::on(storage, sink).await
    }

    async fn on(storage: Storage, sink: Sink) -> Self {
        Self::of("sink", Arc::new(storage), sink).await
    }

    async fn of(name: &str, storage: Arc<Storage>, sink: Sink) -> Self {
        let sink = Arc::new(sink);
        let exporter = Arc::clone(&sink) as Arc<dyn Exporter>;
        let sender = Sender::new(
            exporter,
            name,
            &Meter::default(),
            &unread_status(),
            Some(storage),
            &Taps::default(),
        );
        sender.open().await.unwrap();
        let mut tasks = JoinSet::new();
        tasks.spawn(Arc::clone(&sender).run());
        Self {
            sink,
            sender,
            tasks,
        }
    }

    async fn until_accepted(&self, batches: usize) {
        wait_until("deliveries", async || self.sink.accepted().len() >= batches).await;
    }

    async fn stop(mut self) -> (Arc<Sink>, ExporterBalance) {
        self.sender.close(closing(Duration::from_secs(2)));
        while let Some(ended) = self.tasks.join_next().await {
            ended.unwrap();
        }
        let balance = self.sender.balance();
        (self.sink, balance)
    }
}

fn delivery(change: impl FnOnce(&mut DeliverySettings)) -> Delivery {
    let mut settings = DeliverySettings::default();
    settings.sending_queue.num_consumers = 1;
    settings.retry_on_failure = RetrySettings {
        initial_interval: Duration::from_millis(1).into(),
        max_interval: Duration::from_millis(1).into(),
        max_elapsed_time: Duration::from_millis(50).into(),
        ..RetrySettings::default()
    };
    change(&mut settings);
    settings.delivery()
}

fn refusing() -> Sink {
    let refusals = std::iter::repeat_with(|| Refusal::retry("away")).take(100_000);
    Sink::refusing(refusals).with_delivery(delivery(|settings| {
        settings.retry_on_failure.max_elapsed_time = Duration::ZERO.into();
    }))
}

fn taking() -> Sink {
    Sink::default().with_delivery(delivery(|_| {}))
}

#[tokio::test]
async fn a_backlog_beyond_the_window_is_delivered_once_in_order() {
    let folder = tempfile::tempdir().unwrap();
    let rig = Fixture::start(folder.path(), refusing()).await;
    let count = 3 * WINDOW_BATCHES;
    for samples in 1..=count {
        rig.sender.consume(batch(samples)).await.unwrap();
        let held = rig
            .sender
            .durable()
            .unwrap()
            .shared
            .state
            .lock()
            .window
            .len();
        assert!(held <= WINDOW_BATCHES, "{held}");
    }
    let total = (count * (count + 1) / 2) as u64;
    let (_, balance) = rig.stop().await;
    assert_eq!((balance.delivered, balance.stored), (0, total));

    let rig = Fixture::start(folder.path(), taking()).await;
    rig.until_accepted(count).await;
    // New batches are in memory and on disk.
    rig.sender.consume(batch(5)).await.unwrap();
    rig.until_accepted(count + 1).await;
    let (sink, balance) = rig.stop().await;
    let expected: Vec<usize> = (1..=count).chain([5]).collect();
    assert_eq!(sink.accepted(), expected);
    assert_eq!((balance.delivered, balance.stored), (total + 5, 0));
}

#[tokio::test]
async fn batches_are_flushed_while_the_disk_is_slow_and_none_is_left_behind() {
    const BATCHES: usize = 10;
    let folder = tempfile::tempdir().unwrap();
    let rig = Fixture::start(folder.path(), refusing()).await;
    for samples in 1..=BATCHES {
        rig.sender.consume(batch(samples)).await.unwrap();
    }
    rig.stop().await;
    let merging = Sink::default().with_delivery(delivery(|settings| {
        let batch = QueueBatchSettings {
            min_size: 1_000_000,
            flush_timeout: Duration::from_millis(2).into(),
            ..QueueBatchSettings::default()
        };
        settings.sending_queue.batch = batch.into();
    }));
    let rig = Fixture::start(folder.path(), merging).await;
    let shared = Arc::clone(&rig.sender.durable().unwrap().shared);
    let is_done = Arc::new(AtomicBool::new(false));
    let ends = Arc::clone(&is_done);
    // A read takes several flush timeouts.
    let slow = std::thread::spawn(move || {
        while !ends.load(Ordering::Relaxed) {
            let locked = shared.state.lock();
            std::thread::sleep(Duration::from_millis(10));
            drop(locked);
            std::thread::sleep(Duration::from_millis(1));
        }
    });
    let samples = || rig.sink.accepted().iter().sum::<usize>();
    wait_until("all samples", async || {
        samples() == BATCHES * (BATCHES + 1) / 2
    })
    .await;
    is_done.store(true, Ordering::Relaxed);
    slow.join().unwrap();
    let (_, balance) = rig.stop().await;
    assert_eq!(balance.stored, 0);
}

#[tokio::test]
async fn dropped_batches_leave_the_window_and_report_it() {
    const BATCHES: usize = 40;
    let folder = tempfile::tempdir().unwrap();
    let rig = Fixture::with(folder.path(), refusing(), 12 << 10, WhenFull::DropOldest).await;
    let shared = Arc::clone(&rig.sender.durable().unwrap().shared);
    let mut waiting = Vec::new();
    for _ in 0..BATCHES {
        let (batch, outcomes) = batch_with_outcomes(10);
        rig.sender.consume(batch).await.unwrap();
        waiting.push(outcomes);
        let state = shared.state.lock();
        let held = state.window.iter().map(|(_, _, bytes)| bytes);
        assert_eq!(state.window_bytes, held.sum::<usize>());
        assert!(state.window_bytes <= WINDOW_BYTES);
        assert!(state.window.len() <= WINDOW_BATCHES);
        // One of them may be exported.
        let stored = state.log.stored().batches as usize;
        assert!(state.waiting.len() <= stored, "{stored}");
        drop(state);
    }
    let stored = shared.state.lock().log.stored().batches as usize;
    let dropped = BATCHES - stored;
    assert!(dropped > 10, "{dropped}");
    let reported = waiting
        .iter()
        .filter(|it| it.seen() == [Outcome::Undelivered]);
    assert_eq!(reported.count(), dropped);
    let silent = waiting.iter().filter(|it| it.seen().is_empty());
    assert_eq!(silent.count(), stored);
    let (_, balance) = rig.stop().await;
    assert_eq!(balance.stored, 10 * stored as u64);
    assert_eq!(balance.dropped, [("evicted", 10 * dropped as u64)]);
}

/// Changes all files of the log that have this extension.
fn edit(folder: &Path, extension: &str, change: impl Fn(&mut Vec<u8>)) {
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|it| it == extension) {
                let mut bytes = std::fs::read(&path).unwrap();
                change(&mut bytes);
                std::fs::write(&path, bytes).unwrap();
            }
        }
    }
}

#[tokio::test]
async fn damage_on_disk_is_counted_and_the_rest_is_delivered() {
    type Edit = fn(&mut Vec<u8>);
    let body: Edit = |bytes| {
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
    };
    let header: Edit = |bytes| bytes[0] ^= 1;
    let cases: [(&[&str], Edit, usize, u64); 3] = [
        (&[], header, 3, 0),
        (&["segment"], body, 2, 1),
        // Each file has the header of the other.
        (&["segment", "settled"], header, 0, 1),
    ];
    for (files, damage, delivered, counted) in cases {
        let folder = tempfile::tempdir().unwrap();
        let rig = Fixture::start(folder.path(), refusing()).await;
        for _ in 0..3 {
            rig.sender.consume(batch(10)).await.unwrap();
        }
        rig.stop().await;
        for extension in files {
            edit(folder.path(), extension, damage);
        }
        let rig = Fixture::start(folder.path(), taking()).await;
        let shared = Arc::clone(&rig.sender.durable().unwrap().shared);
        rig.until_accepted(delivered).await;
        wait_until("the count", async || {
            shared.metrics.corrupt_records.get() >= counted
        })
        .await;
        let (sink, balance) = rig.stop().await;
        assert_eq!(sink.accepted(), vec![10; delivered], "{files:?}");
        assert_eq!(shared.metrics.corrupt_records.get(), counted, "{files:?}");
        assert_eq!(balance.stored, 0, "{files:?}");
    }
}

#[tokio::test]
async fn finalizers_of_stored_batches_get_the_outcome_beyond_the_window() {
    let folder = tempfile::tempdir().unwrap();
    let slow = taking().taking(Duration::from_millis(2));
    let rig = Fixture::start(folder.path(), slow).await;
    let mut waiting = Vec::new();
    for _ in 0..2 * WINDOW_BATCHES {
        let (batch, outcomes) = batch_with_outcomes(1);
        rig.sender.consume(batch).await.unwrap();
        waiting.push(outcomes);
    }
    rig.until_accepted(waiting.len()).await;
    rig.stop().await;
    for outcomes in waiting {
        assert_eq!(outcomes.seen(), [Outcome::Delivered]);
    }
}

#[tokio::test]
async fn finalizers_report_undelivered_at_shutdown() {
    let folder = tempfile::tempdir().unwrap();
    let rig = Fixture::start(folder.path(), refusing()).await;
    let mut waiting = Vec::new();
    for _ in 0..5 {
        let (batch, outcomes) = batch_with_outcomes(1);
        rig.sender.consume(batch).await.unwrap();
        waiting.push(outcomes);
    }
    let (sink, balance) = rig.stop().await;
    assert_eq!(balance.stored, 5);
    drop(sink);
    for outcomes in waiting {
        assert!(
            !outcomes.seen().contains(&Outcome::Delivered),
            "{:?}",
            outcomes.seen()
        );
    }
}

#[tokio::test]
async fn refused_batches_and_exhausted_retries_are_dropped() {
    let folder = tempfile::tempdir().unwrap();
    let away = std::iter::repeat_with(|| Refusal::retry("away")).take(100_000);
    for (sink, reason) in [
        (Sink::refusing([Refusal::permanent("bad")]), "rejected"),
        (Sink::refusing(away), "retries_exhausted"),
    ] {
        let rig = Fixture::start(folder.path(), sink.with_delivery(delivery(|_| {}))).await;
        rig.sender.consume(batch(7)).await.unwrap();
        let durable = rig.sender.durable().unwrap();
        wait_until("the drop", async || durable.stored_batches() == 0).await;
        let (_, balance) = rig.stop().await;
        assert_eq!((balance.dropped, balance.stored), (vec![(reason, 7)], 0));
    }
    let (sink, balance) = Fixture::start(folder.path(), taking()).await.stop().await;
    assert_eq!((sink.accepted(), balance.stored), (vec![], 0));
}

#[tokio::test]
async fn live_batches_are_stored_without_blocking_their_source() {
    let folder = tempfile::tempdir().unwrap();
    let rig = Fixture::start(folder.path(), refusing()).await;
    for _ in 0..10 {
        let live = Batch {
            source: Source::Live,
            ..batch(3)
        };
        rig.sender.consume(live).await.unwrap();
    }
    let (_, balance) = rig.stop().await;
    assert_eq!((balance.stored, balance.dropped), (30, vec![]));
    let rig = Fixture::start(folder.path(), taking()).await;
    rig.until_accepted(10).await;
    let (_, balance) = rig.stop().await;
    assert_eq!(balance.delivered, 30);
}

#[tokio::test]
async fn a_full_stored_queue_refuses_live_batches_that_have_an_alternative() {
    let folder = tempfile::tempdir().unwrap();
    for block_on_overflow in [false, true] {
        let refuses = Sink::refusing((0..100_000).map(|_| Refusal::retry("down")));
        let full = refuses.with_delivery(delivery(|settings| {
            settings.retry_on_failure.max_elapsed_time = Duration::ZERO.into();
            settings.sending_queue.queue_size = 2;
            settings.sending_queue.block_on_overflow = block_on_overflow;
        }));
        let rig = Fixture::start(folder.path(), full).await;
        let mut answers = Vec::new();
        for _ in 0..4 {
            let live = Batch {
                source: Source::Live,
                has_alternative: true,
                ..batch(3)
            };
            answers.push(rig.sender.consume(live).await.is_ok());
        }
        let (_, balance) = rig.stop().await;
        let stored_before = block_on_overflow;
        assert_eq!(answers, [!stored_before, !stored_before, false, false]);
        assert_eq!((balance.stored, balance.dropped), (6, vec![]));
    }
}

#[tokio::test]
async fn a_batch_too_large_for_the_destination_is_split() {
    let folder = tempfile::tempdir().unwrap();
    let rig = Fixture::start(folder.path(), refusing()).await;
    rig.sender.consume(batch(40)).await.unwrap();
    rig.stop().await;
    let too_large = Refusal::TooLarge {
        reason: "too large".into(),
        limit_bytes: 1500,
    };
    let sink = Sink::refusing([too_large]).with_delivery(delivery(|_| {}));
    let rig = Fixture::start(folder.path(), sink).await;
    let accepted = || rig.sink.accepted().iter().sum::<usize>();
    wait_until("all samples", async || accepted() >= 40).await;
    let (sink, balance) = rig.stop().await;
    assert!(sink.accepted().len() > 1);
    assert_eq!((balance.delivered, balance.stored), (40, 0));
}

/// The log has the whole batch, not its pieces.
#[tokio::test]
async fn a_batch_stays_stored_if_one_piece_is_refused_and_another_cut_off() {
    let folder = tempfile::tempdir().unwrap();
    let too_large = Refusal::TooLarge {
        reason: "too large".into(),
        limit_bytes: 1500,
    };
    let away = std::iter::repeat_with(|| Refusal::retry("away")).take(100_000);
    let refusals = [too_large, Refusal::permanent("bad")]
        .into_iter()
        .chain(away);
    let endless = delivery(|settings| {
        settings.retry_on_failure.max_elapsed_time = Duration::ZERO.into();
    });
    let sink = Sink::refusing(refusals).with_delivery(endless);
    let rig = Fixture::start(folder.path(), sink).await;
    rig.sender.consume(batch(40)).await.unwrap();
    wait_until("a retry", async || rig.sink.offered() > 3).await;
    let (_, balance) = rig.stop().await;
    let [("rejected", rejected)] = balance.dropped[..] else {
        panic!("{balance}");
    };
    assert_eq!(balance.stored, 40 - rejected);
    let rig = Fixture::start(folder.path(), taking()).await;
    rig.until_accepted(1).await;
    let (sink, balance) = rig.stop().await;
    assert_eq!(sink.accepted(), [40]);
    assert_eq!(balance.recovered, 40);
}

#[tokio::test]
async fn metrics_show_what_is_stored() {
    let folder = tempfile::tempdir().unwrap();
    let shown = |shared: &Shared| {
        let metrics = &shared.metrics;
        (metrics.batches.get(), metrics.queue_size.get())
    };
    let rig = Fixture::start(folder.path(), refusing()).await;
    let shared = Arc::clone(&rig.sender.durable().unwrap().shared);
    for _ in 0..3 {
        rig.sender.consume(batch(10)).await.unwrap();
    }
    wait_until("three batches", async || shown(&shared) == (3.0, 3.0)).await;
    assert!(shared.metrics.bytes.get() > 0.0);
    rig.stop().await;
    let rig = Fixture::start(folder.path(), taking()).await;
    let shared = Arc::clone(&rig.sender.durable().unwrap().shared);
    rig.until_accepted(3).await;
    wait_until("none", async || shown(&shared) == (0.0, 0.0)).await;
    rig.stop().await;
    assert_eq!(shared.metrics.bytes.get(), 0.0);
}

/// Reading a batch back costs more than keeping it.
#[tokio::test]
async fn the_window_holds_batches_up_to_its_size() {
    let folder = tempfile::tempdir().unwrap();
    let rig = Fixture::with(folder.path(), refusing(), 1 << 30, WhenFull::Block).await;
    let shared = Arc::clone(&rig.sender.durable().unwrap().shared);
    let held = || {
        let state = shared.state.lock();
        (state.window.len(), state.window_bytes)
    };
    // One is exported, and one is next.
    for _ in 0..2 {
        rig.sender.consume(batch(1)).await.unwrap();
    }
    wait_until("an empty window", async || held() == (0, 0)).await;
    let large = batch(20_000);
    large.profiles.body();
    rig.sender.consume(large.clone()).await.unwrap();
    let (_, bytes) = held();
    let fits = WINDOW_BYTES / bytes;
    assert!((2..WINDOW_BATCHES).contains(&fits), "{bytes} bytes");
    for _ in 0..fits {
        rig.sender.consume(large.clone()).await.unwrap();
    }
    assert_eq!(held(), (fits, fits * bytes));
    rig.stop().await;
}

#[tokio::test]
async fn a_writer_panic_is_propagated_by_the_dispatcher() {
    let folder = tempfile::tempdir().unwrap();
    let mut rig = Fixture::start(folder.path(), taking()).await;
    let durable = rig.sender.durable().unwrap();
    assert!(durable.send(Request::Panic).is_none());
    let ended = rig.tasks.join_next().await.unwrap();
    assert!(ended.is_err_and(|error| error.is_panic()));
}

#[tokio::test]
async fn excess_partitions_are_flushed() {
    let folder = tempfile::tempdir().unwrap();
    let sink = Sink::default().with_delivery(delivery(|settings| {
        settings.sending_queue = serde_json::from_value(serde_json::json!({
            "batch": {"min_size": 1000, "flush_timeout": "1h", "partition": {"metadata_keys": ["tenant"]}}
        }))
        .unwrap();
    }));
    let rig = Fixture::start(folder.path(), sink).await;
    for tenant in 0..=MAX_PARTITIONS {
        let mut metadata = Metadata::default();
        metadata.add("tenant", &tenant.to_string());
        rig.sender
            .consume(batch(1).with_metadata(metadata))
            .await
            .unwrap();
    }
    rig.until_accepted(MAX_PARTITIONS).await;
    let (_, balance) = rig.stop().await;
    assert_eq!(balance.delivered, MAX_PARTITIONS as u64 + 1);
}

#[tokio::test]
async fn each_attempt_has_the_id_of_the_stored_batch_also_in_the_next_run() {
    let folder = tempfile::tempdir().unwrap();
    let rig = Fixture::start(folder.path(), refusing()).await;
    let batch = batch(3);
    let id = batch.id;
    rig.sender.consume(batch).await.unwrap();
    wait_until("retries", async || rig.sink.offered() >= 3).await;
    let (before, _) = rig.stop().await;
    let rig = Fixture::start(folder.path(), taking()).await;
    rig.until_accepted(1).await;
    let (after, _) = rig.stop().await;
    let ids = [before.offered_ids(), after.offered_ids()].concat();
    assert!(ids.len() > 3 && ids.iter().all(|it| *it == id), "{ids:?}");
}
