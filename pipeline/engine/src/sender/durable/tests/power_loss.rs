//! What a power loss and a failed fsync cost with each `fsync`, on a simulated disk and the paused clock.

use futures_util::future::join_all;
use profcol_storage::simulated::{Faults, SimulatedDisk};

use super::super::writer::{MAX_GROUP, TURN};
use super::*;

pub(super) const INTERVAL: Duration = Duration::from_secs(1);

/// Each disk keeps different unsynced bytes.
pub(super) const DISKS: u64 = 40;

const FAILING_SYNC: Faults = Faults {
    sync: 1000,
    append: 0,
    read: 0,
    remove: 0,
};

async fn start(disk: &SimulatedDisk, fsync: FsyncPolicy, sink: Sink) -> Fixture {
    Fixture::on(storage(disk, fsync), sink).await
}

pub(super) fn storage(disk: &SimulatedDisk, fsync: FsyncPolicy) -> Storage {
    let options = StorageOptions {
        directory: "simulated".into(),
        create_directory: false,
        fsync,
        max_bytes: 16 << 20,
        when_full: WhenFull::Block,
    };
    Storage::simulated(options, disk.clone())
}

/// Kills the process.
async fn kill(rig: Fixture, disk: &SimulatedDisk) {
    disk.kill();
    let shared = Arc::downgrade(&rig.sender.durable().unwrap().shared);
    drop(rig);
    wait_until("the end of its tasks", async || shared.strong_count() == 0).await;
    disk.restart();
}

/// The sizes of the batches that the next process delivers.
async fn recovered(disk: &SimulatedDisk, fsync: FsyncPolicy) -> Vec<usize> {
    let rig = start(disk, fsync, taking()).await;
    let durable = Arc::clone(rig.sender.durable().unwrap());
    wait_until("all deliveries", async || durable.stored_batches() == 0).await;
    rig.stop().await.0.accepted()
}

/// Stores ten batches of one to ten samples, the last four in the last interval before the power fails. Returns those that
/// survive on each disk.
async fn survivors_of_ten(fsync: FsyncPolicy) -> Vec<Vec<usize>> {
    let mut survivors = Vec::new();
    for seed in 0..DISKS {
        let disk = SimulatedDisk::new(seed);
        let rig = start(&disk, fsync, refusing()).await;
        for samples in 1..=10 {
            tokio::time::sleep(INTERVAL * 3 / 10).await;
            rig.sender.consume(batch(samples)).await.unwrap();
        }
        kill(rig, &disk).await;
        disk.lose_power();
        let arrived = recovered(&disk, fsync).await;
        assert_whole(&arrived);
        survivors.push(arrived);
    }
    survivors
}

/// Batches in their order, also with holes between them, and none that was not stored.
pub(super) fn assert_whole(arrived: &[usize]) {
    assert!(arrived.is_sorted_by(|a, b| a < b), "{arrived:?}");
    assert!(arrived.iter().all(|it| *it <= 10), "{arrived:?}");
}

pub(super) fn assert_nothing_lost(survivors: &[Vec<usize>]) {
    for arrived in survivors {
        assert_eq!(arrived.len(), 10, "{arrived:?}");
    }
}

pub(super) fn assert_only_the_last_interval_lost(survivors: &[Vec<usize>]) {
    for arrived in survivors {
        assert!(arrived.starts_with(&[1, 2, 3, 4, 5, 6]), "{arrived:?}");
    }
    assert!(survivors.iter().any(|it| it.len() < 10), "{survivors:?}");
}

#[tokio::test(start_paused = true)]
async fn fsync_always_loses_nothing() {
    assert_nothing_lost(&survivors_of_ten(FsyncPolicy::Always).await);
}

#[tokio::test(start_paused = true)]
async fn fsync_interval_loses_at_most_the_last_interval() {
    let survivors = survivors_of_ten(FsyncPolicy::Interval(INTERVAL)).await;
    assert_only_the_last_interval_lost(&survivors);
}

#[tokio::test(start_paused = true)]
async fn fsync_never_may_lose_everything_and_delivers_nothing_corrupt() {
    let survivors = survivors_of_ten(FsyncPolicy::Never).await;
    assert!(survivors.contains(&Vec::new()), "{survivors:?}");
    assert!(survivors.iter().any(|it| !it.is_empty()), "{survivors:?}");
}

#[tokio::test(start_paused = true)]
async fn no_fsync_is_needed_to_survive_a_kill() {
    let policies = [
        FsyncPolicy::Always,
        FsyncPolicy::Interval(INTERVAL),
        FsyncPolicy::Never,
    ];
    for fsync in policies {
        let disk = SimulatedDisk::new(1);
        let rig = start(&disk, fsync, refusing()).await;
        for samples in 1..=10 {
            rig.sender.consume(batch(samples)).await.unwrap();
        }
        kill(rig, &disk).await;
        let expected: Vec<usize> = (1..=10).collect();
        assert_eq!(recovered(&disk, fsync).await, expected, "{fsync:?}");
    }
}

/// Without waiting for another batch.
#[tokio::test(start_paused = true)]
async fn batches_of_a_killed_process_are_synced_within_the_interval() {
    let fsync = FsyncPolicy::Interval(INTERVAL);
    for seed in 0..DISKS {
        let disk = SimulatedDisk::new(seed);
        let rig = start(&disk, fsync, refusing()).await;
        rig.sender.consume(batch(5)).await.unwrap();
        kill(rig, &disk).await;
        let rig = start(&disk, fsync, refusing()).await;
        tokio::time::sleep(INTERVAL + 2 * TURN).await;
        kill(rig, &disk).await;
        disk.lose_power();
        assert_eq!(recovered(&disk, fsync).await, [5], "disk {seed}");
    }
}

#[tokio::test(start_paused = true)]
async fn batches_share_an_fsync() {
    for (batches, syncs) in [(100, 1), (MAX_GROUP, 1), (MAX_GROUP + 1, 2)] {
        let disk = SimulatedDisk::new(1);
        let sink = Sink::default().with_delivery(delivery(|settings| {
            settings.sending_queue.queue_size = 10_000;
        }));
        let rig = start(&disk, FsyncPolicy::Always, sink).await;
        let consuming = (0..batches).map(|_| rig.sender.consume(batch(1)));
        for answer in join_all(consuming).await {
            answer.unwrap();
        }
        let metrics = &rig.sender.durable().unwrap().shared.metrics;
        assert_eq!(metrics.stored_batches.get(), batches as u64);
        // All of them wait when the writer looks.
        assert_eq!(metrics.fsync.get_sample_count(), syncs, "{batches}");
        rig.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn an_interval_has_one_fsync() {
    let disk = SimulatedDisk::new(1);
    let rig = start(&disk, FsyncPolicy::Interval(INTERVAL), refusing()).await;
    for _ in 0..50 {
        tokio::time::sleep(INTERVAL / 10).await;
        rig.sender.consume(batch(1)).await.unwrap();
    }
    let metrics = &rig.sender.durable().unwrap().shared.metrics;
    let syncs = metrics.fsync.get_sample_count();
    assert!((3..=5).contains(&syncs), "{syncs}");
    rig.stop().await;
}

#[tokio::test(start_paused = true)]
async fn after_a_stop_batches_are_durable() {
    for fsync in [FsyncPolicy::Always, FsyncPolicy::Interval(INTERVAL)] {
        for seed in 0..DISKS / 4 {
            let disk = SimulatedDisk::new(seed);
            let rig = start(&disk, fsync, refusing()).await;
            for samples in 1..=3 {
                rig.sender.consume(batch(samples)).await.unwrap();
            }
            rig.stop().await;
            disk.lose_power();
            assert_eq!(
                recovered(&disk, fsync).await,
                [1, 2, 3],
                "{fsync:?}, {seed}"
            );
        }
    }
}

/// The writer does not run meanwhile.
#[tokio::test(start_paused = true)]
async fn more_live_batches_than_may_wait_for_the_disk_are_dropped_and_counted() {
    for parts in [1, 3] {
        let disk = SimulatedDisk::new(1);
        let rig = start(&disk, FsyncPolicy::Never, refusing()).await;
        rig.sender.durable().unwrap().expect_parts(parts);
        let mut waiting = Vec::new();
        for _ in 0..MAX_LIVE * parts as u64 + 2 {
            let (batch, outcomes) = batch_with_outcomes(5);
            let source = Source::Live;
            rig.sender.consume(Batch { source, ..batch }).await.unwrap();
            waiting.push(outcomes);
        }
        let dropped = waiting.split_off(waiting.len() - 2);
        for outcomes in dropped {
            assert_eq!(outcomes.seen(), [Outcome::Undelivered]);
        }
        let (_, balance) = rig.stop().await;
        assert_eq!(balance.dropped, [("queue_full", 10)]);
        assert_eq!(balance.stored, 5 * waiting.len() as u64);
    }
}

/// The writer's thread, on a real disk.
#[tokio::test]
async fn a_thread_syncs_without_further_requests() {
    let folder = tempfile::tempdir().unwrap();
    let storage = Storage::new(StorageOptions {
        directory: folder.path().to_owned(),
        create_directory: true,
        fsync: FsyncPolicy::Interval(Duration::from_millis(10)),
        max_bytes: 16 << 20,
        when_full: WhenFull::Block,
    });
    storage.lock().unwrap();
    let rig = Fixture::on(storage, refusing()).await;
    rig.sender.consume(batch(1)).await.unwrap();
    let metrics = &rig.sender.durable().unwrap().shared.metrics;
    wait_until("a sync", async || metrics.fsync.get_sample_count() == 1).await;
    rig.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_batch_whose_fsync_fails_is_refused_and_not_delivered() {
    let disk = SimulatedDisk::new(1);
    let rig = start(&disk, FsyncPolicy::Always, refusing()).await;
    rig.sender.consume(batch(1)).await.unwrap();
    disk.set_faults(FAILING_SYNC);
    let refusal = rig.sender.consume(batch(2)).await.unwrap_err();
    assert!(matches!(refusal, Refusal::Retry { .. }), "{refusal}");
    let reason = refusal.to_string();
    assert!(
        reason.contains("failed to make the batch durable"),
        "{reason}"
    );
    let (live, outcomes) = batch_with_outcomes(4);
    let live = Batch {
        source: Source::Live,
        ..live
    };
    rig.sender.consume(live).await.unwrap();
    wait_until("the outcome", async || !outcomes.seen().is_empty()).await;
    assert_eq!(outcomes.seen(), [Outcome::Undelivered]);
    let durable = Arc::clone(rig.sender.durable().unwrap());
    assert_eq!(durable.shared.metrics.failed_syncs.get(), 2);
    assert_eq!(durable.stored_batches(), 1);
    assert_eq!(durable.shared.size.load(Ordering::Relaxed), 1);
    assert_eq!(rig.sender.balance().dropped, [("storage_failed", 4)]);

    disk.set_faults(Faults::default());
    rig.sender.consume(batch(8)).await.unwrap();
    drop(durable);
    kill(rig, &disk).await;
    disk.lose_power();
    assert_eq!(recovered(&disk, FsyncPolicy::Always).await, [1, 8]);
}

#[tokio::test(start_paused = true)]
async fn after_a_failed_fsync_of_an_interval_new_batches_are_durable() {
    let fsync = FsyncPolicy::Interval(INTERVAL);
    for seed in 0..DISKS {
        let disk = SimulatedDisk::new(seed);
        let rig = start(&disk, fsync, refusing()).await;
        disk.set_faults(FAILING_SYNC);
        rig.sender.consume(batch(1)).await.unwrap();
        tokio::time::sleep(INTERVAL + 2 * TURN).await;
        let durable = Arc::clone(rig.sender.durable().unwrap());
        assert_eq!(durable.shared.metrics.failed_syncs.get(), 1);
        drop(durable);
        disk.set_faults(Faults::default());
        rig.sender.consume(batch(2)).await.unwrap();
        tokio::time::sleep(INTERVAL + 2 * TURN).await;
        kill(rig, &disk).await;
        disk.lose_power();
        let arrived = recovered(&disk, fsync).await;
        assert_eq!(arrived.last(), Some(&2), "disk {seed}: {arrived:?}");
    }
}
