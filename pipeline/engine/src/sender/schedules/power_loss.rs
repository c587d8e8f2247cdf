//! The same with a stored queue on a simulated disk that fails and loses power, in processes that are killed at any time.

use std::collections::BTreeMap;

use profcol_storage::simulated::{Faults as DiskFaults, SimulatedDisk};

use super::*;

const POWER_LOSS_SCHEDULES: u64 = 300;

/// Until the writer looks for requests and due syncs.
const WRITER_SLACK: Duration = Duration::from_millis(50);

/// In each batch.
const SAMPLES: usize = 3;

/// When a batch was accepted; `None` if it was refused, or its source does not know.
type Accepted = (u64, Option<Instant>);

#[test]
fn accepted_batches_outlast_power_losses_and_failing_disks() {
    let (mut unsafe_batches, mut failed) = (0, 0);
    SEEDS.each(POWER_LOSS_SCHEDULES, async |seed| {
        let mut random = Rng::with_seed(seed);
        let disk = SimulatedDisk::new(seed);
        let fsync = match random.u8(..3) {
            0 => FsyncPolicy::Always,
            1 => FsyncPolicy::Interval(up_to(&mut random, 3_000)),
            _ => FsyncPolicy::Never,
        };
        let faults = disk_faults(&mut random, fsync);
        // Since when they are in the log.
        let mut expected: BTreeMap<u64, Instant> = BTreeMap::new();
        let mut taken = BTreeMap::new();
        let mut corrupt = 0;
        let mut first_id = 0;
        for _ in 0..random.u8(1..5) {
            let run = Run::start(&mut random, &disk, fsync, taken, false).await;
            disk.set_faults(faults);
            let sent = run.send(&mut random, first_id).await;
            let ended = Instant::now();
            failed += run.sender.durable().unwrap().failed_syncs();
            corrupt += run.corrupt_samples();
            taken = run.kill(&disk).await;
            disk.set_faults(DiskFaults::default());
            first_id += sent.len() as u64;
            let accepted = sent.iter().filter_map(|(id, at)| Some((*id, (*at)?)));
            expected.extend(accepted);
            if random.bool() {
                disk.lose_power();
                let before = expected.len();
                expected.retain(|_, since| match fsync {
                    FsyncPolicy::Always => true,
                    FsyncPolicy::Interval(interval) => *since + interval + WRITER_SLACK < ended,
                    FsyncPolicy::Never => false,
                });
                unsafe_batches += before - expected.len();
            } else {
                // The next process has to sync them.
                expected.values_mut().for_each(|since| *since = ended);
            }
        }
        let run = Run::start(&mut random, &disk, fsync, taken, true).await;
        let durable = Arc::clone(run.sender.durable().unwrap());
        let emptied = timeout(Duration::from_secs(3_600), async {
            while durable.stored_batches() > 0 {
                sleep(Duration::from_millis(100)).await;
            }
        });
        emptied
            .await
            .unwrap_or_else(|_| panic!("seed {seed}: not delivered"));
        drop(durable);
        corrupt += run.corrupt_samples();
        let taken = run.kill(&disk).await;
        for (id, samples) in &taken {
            assert!(*id < first_id, "seed {seed}: batch {id} was never sent");
            assert_eq!(samples % SAMPLES, 0, "seed {seed}: a part of batch {id}");
        }
        let missing: Vec<&u64> = expected
            .keys()
            .filter(|id| !taken.contains_key(id))
            .collect();
        // What cannot be read is dropped and counted.
        assert!(
            missing.len() as u64 * SAMPLES as u64 <= if faults.read > 0 { corrupt } else { 0 },
            "seed {seed}, {fsync:?}: lost {missing:?}, {corrupt} corrupt samples"
        );
    });
    assert!(SEEDS.are_chosen() || unsafe_batches > 0 && failed > 0);
}

/// With `interval`, what a failed fsync covered is lost if the power also fails.
fn disk_faults(random: &mut Rng, fsync: FsyncPolicy) -> DiskFaults {
    let mut share = |up_to| match random.bool() {
        true => random.u64(..up_to),
        false => 0,
    };
    DiskFaults {
        append: share(100),
        sync: match fsync {
            FsyncPolicy::Always | FsyncPolicy::Never => share(300),
            FsyncPolicy::Interval(_) => 0,
        },
        read: share(20),
        remove: share(100),
    }
}

/// A process.
struct Run {
    sender: Arc<Sender>,
    destination: Arc<Destination>,
    tasks: JoinSet<()>,
}

impl Run {
    /// Its destination refuses nothing for good.
    async fn start(
        random: &mut Rng,
        disk: &SimulatedDisk,
        fsync: FsyncPolicy,
        taken: BTreeMap<u64, usize>,
        takes_all: bool,
    ) -> Self {
        let mut settings = DeliverySettings::default();
        settings.retry_on_failure.initial_interval = up_to(random, 500).into();
        settings.retry_on_failure.max_elapsed_time = Duration::ZERO.into();
        settings.sending_queue.num_consumers = random.i64(1..5);
        let mut destination = Destination::with_delivery(random, settings.delivery());
        destination.faults = Faults {
            retryable: match takes_all {
                true => 0,
                false => random.u8(..100),
            },
            ..Faults::default()
        };
        destination.taken = Mutex::new(taken);
        let destination = Arc::new(destination);
        let options = StorageOptions {
            directory: "simulated".into(),
            create_directory: false,
            fsync,
            max_bytes: 16 << 20,
            when_full: WhenFull::Block,
        };
        let sender = Sender::new(
            Arc::clone(&destination) as Arc<dyn Exporter>,
            "destination",
            &Meter::default(),
            &unread_status(),
            Some(Arc::new(Storage::simulated(options, disk.clone()))),
            &Taps::default(),
        );
        sender.open().await.unwrap();
        let mut tasks = JoinSet::new();
        tasks.spawn(Arc::clone(&sender).run());
        Self {
            sender,
            destination,
            tasks,
        }
    }

    /// Sources send until a random time.
    async fn send(&self, random: &mut Rng, first_id: u64) -> Vec<Accepted> {
        let ids = first_id..first_id + random.u64(1..40);
        let accepted = Arc::new(Mutex::new(BTreeMap::new()));
        let mut sources = JoinSet::new();
        for id in ids.clone() {
            let (sender, accepted) = (Arc::clone(&self.sender), Arc::clone(&accepted));
            let after = up_to(random, 10_000);
            sources.spawn(async move {
                sleep(after).await;
                let (mut batch, _) = batch_with_outcomes(SAMPLES);
                batch.profiles = named(batch.profiles, id);
                if sender.consume(batch).await.is_ok() {
                    accepted.lock().insert(id, Instant::now());
                }
            });
        }
        sleep(up_to(random, 12_000)).await;
        sources.shutdown().await;
        let accepted = accepted.lock();
        ids.map(|id| (id, accepted.get(&id).copied())).collect()
    }

    fn corrupt_samples(&self) -> u64 {
        let dropped = self.sender.balance().dropped;
        let corrupt = dropped
            .iter()
            .filter(|it| it.0 == DropReason::Corrupt.name());
        corrupt.map(|it| it.1).sum()
    }

    /// Returns what has arrived so far.
    async fn kill(self, disk: &SimulatedDisk) -> BTreeMap<u64, usize> {
        let Self {
            sender,
            destination,
            tasks,
        } = self;
        disk.kill();
        let mut ended = sender.durable().unwrap().ended();
        drop((sender, tasks));
        while !ended() {
            sleep(Duration::from_millis(1)).await;
        }
        disk.restart();
        std::mem::take(&mut *destination.taken.lock())
    }
}
