//! Two exporters with queues in one storage share what they store, on a simulated disk and the paused clock.

use futures_util::future::join;
use profcol_storage::simulated::SimulatedDisk;

use super::power_loss::{
    DISKS, INTERVAL, assert_nothing_lost, assert_only_the_last_interval_lost, assert_whole, storage,
};
use super::*;

/// Each sample takes some tens of bytes: batches are large enough to be shared.
const SAMPLES: usize = 100;

struct Pair([Fixture; 2]);

impl Pair {
    async fn start(disk: &SimulatedDisk, fsync: FsyncPolicy, sink: fn() -> Sink) -> Self {
        let storage = Arc::new(storage(disk, fsync));
        let first = Fixture::of("first", Arc::clone(&storage), sink()).await;
        Self([first, Fixture::of("second", storage, sink()).await])
    }

    /// The same batch for both, with different ids as from a fan-out.
    async fn consume(&self, hundreds: usize) {
        let batch = batch(hundreds * SAMPLES);
        let id = batch.id.within("second");
        let Self([first, second]) = self;
        let (one, two) = join(
            first.sender.consume(batch.clone()),
            second.sender.consume(batch.with_id(id)),
        )
        .await;
        one.unwrap();
        two.unwrap();
    }

    fn shared_bytes(&self) -> u64 {
        let metrics = self.0.iter().map(|rig| {
            let durable = rig.sender.durable().unwrap();
            durable.shared.metrics.shared_bytes.get()
        });
        metrics.sum()
    }

    async fn kill(self, disk: &SimulatedDisk) {
        disk.kill();
        let shared = self.0.each_ref();
        let shared = shared.map(|rig| Arc::downgrade(&rig.sender.durable().unwrap().shared));
        drop(self);
        wait_until("the end of their tasks", async || {
            shared.iter().all(|shared| shared.strong_count() == 0)
        })
        .await;
        disk.restart();
    }

    /// What the two of the next process deliver, in hundreds of samples.
    async fn recovered(disk: &SimulatedDisk, fsync: FsyncPolicy) -> [Vec<usize>; 2] {
        let Self(pair) = Self::start(disk, fsync, taking).await;
        let mut arrived = [Vec::new(), Vec::new()];
        for (rig, arrived) in pair.into_iter().zip(&mut arrived) {
            let durable = Arc::clone(rig.sender.durable().unwrap());
            wait_until("all deliveries", async || durable.stored_batches() == 0).await;
            assert_eq!(durable.shared.metrics.corrupt_records.get(), 0);
            if fsync == FsyncPolicy::Always {
                assert_eq!(durable.shared.metrics.missing_batches.get(), 0);
            }
            drop(durable);
            let delivered = rig.stop().await.0.accepted();
            arrived.extend(delivered.into_iter().map(|it| it / SAMPLES));
        }
        assert_eq!(disk.files(), 0, "the space is given back");
        arrived
    }
}

/// Ten batches, the last four in the last interval before the power fails.
async fn survivors_of_ten(fsync: FsyncPolicy) -> Vec<Vec<usize>> {
    let mut survivors = Vec::new();
    for seed in 0..DISKS {
        let disk = SimulatedDisk::new(seed);
        let pair = Pair::start(&disk, fsync, refusing).await;
        for hundreds in 1..=10 {
            tokio::time::sleep(INTERVAL * 3 / 10).await;
            pair.consume(hundreds).await;
        }
        assert!(pair.shared_bytes() > 0);
        pair.kill(&disk).await;
        disk.lose_power();
        for arrived in Pair::recovered(&disk, fsync).await {
            assert_whole(&arrived);
            survivors.push(arrived);
        }
    }
    survivors
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
async fn what_cannot_be_shared_is_copied_and_no_batch_refused() {
    type Break = fn(&SimulatedDisk, Option<&str>);
    let breaks: [Break; 2] = [SimulatedDisk::break_folder, SimulatedDisk::break_syncs];
    for (breaks, failed_syncs) in breaks.into_iter().zip([0, 2]) {
        let disk = SimulatedDisk::new(1);
        let pair = Pair::start(&disk, FsyncPolicy::Always, refusing).await;
        pair.consume(1).await;
        let shared = pair.shared_bytes();
        breaks(&disk, Some("batches"));
        pair.consume(2).await;
        assert_eq!(pair.shared_bytes(), shared, "each has a copy");
        breaks(&disk, None);
        let failed = pair.0.iter().map(|rig| {
            let durable = rig.sender.durable().unwrap();
            assert_eq!(durable.stored_batches(), 2);
            assert_eq!(durable.shared.size.load(Ordering::Relaxed), 2);
            durable.failed_syncs()
        });
        assert_eq!(failed.sum::<u64>(), failed_syncs);
        pair.consume(3).await;
        assert!(pair.shared_bytes() > shared);
        pair.kill(&disk).await;
        disk.lose_power();
        let arrived = Pair::recovered(&disk, FsyncPolicy::Always).await;
        assert_eq!(arrived, [[1, 2, 3], [1, 2, 3]]);
    }
}

/// What the other queue still has takes as much of the disk as before.
#[tokio::test(start_paused = true)]
async fn on_a_full_disk_no_queue_drops_all_that_another_one_has_too() {
    const BATCHES: usize = 100;
    let start = async |name: &str, storage: &Arc<Storage>| {
        Fixture::of(name, Arc::clone(storage), refusing()).await
    };
    let storage_on = |disk: &SimulatedDisk| {
        let options = StorageOptions {
            directory: "simulated".into(),
            create_directory: false,
            fsync: FsyncPolicy::Never,
            max_bytes: 1 << 20,
            when_full: WhenFull::DropOldest,
        };
        Arc::new(Storage::simulated(options, disk.clone()))
    };
    let dropped = |rig: &Fixture| rig.sender.progress().dropped as usize / SAMPLES;

    let disk = SimulatedDisk::new(1);
    let storage = storage_on(&disk);
    let pair = Pair([
        start("first", &storage).await,
        start("second", &storage).await,
    ]);
    for _ in 0..BATCHES {
        pair.consume(1).await;
    }
    // More than one queue alone takes.
    disk.set_capacity(disk.bytes() / 2);
    let [first, second] = &pair.0;
    let durable = first.sender.durable().unwrap();
    let segment_bytes = durable.shared.state.lock().log.limits().segment_bytes as usize;
    let in_vain = 2 * segment_bytes / batch(SAMPLES).profiles.encoded_len();
    for _ in 0..3 {
        let refusal = first.sender.consume(batch(SAMPLES)).await.unwrap_err();
        assert!(refusal.is_retryable(), "{refusal}");
        let expected = in_vain * 9 / 10..=in_vain + 1;
        assert!(
            expected.contains(&dropped(first)),
            "{expected:?}, {}",
            dropped(first)
        );
    }
    assert_eq!(dropped(second), 0);
    // It has room again, and drops as much the next time.
    disk.set_capacity(u64::MAX);
    first.sender.consume(batch(SAMPLES)).await.unwrap();
    let before = dropped(first);
    disk.set_capacity(disk.bytes() / 2);
    first.sender.consume(batch(SAMPLES)).await.unwrap_err();
    assert!(dropped(first) > before + 1);

    let disk = SimulatedDisk::new(1);
    let alone = start("alone", &storage_on(&disk)).await;
    for _ in 0..BATCHES {
        alone.sender.consume(batch(SAMPLES)).await.unwrap();
    }
    disk.set_capacity(disk.bytes());
    alone.sender.consume(batch(SAMPLES)).await.unwrap();
    assert!(
        (1..BATCHES).contains(&dropped(&alone)),
        "{}",
        dropped(&alone)
    );
}
