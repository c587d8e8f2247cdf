//! With one stored queue for all destinations.

use std::path::{Path, PathBuf};

use profcol_component::QueueBatchSettings;
use profcol_storage::{FsyncPolicy, StorageOptions, WhenFull};

use super::*;

/// With so few consumers, a destination has at most two batches in memory.
fn stored(change: impl FnOnce(&mut QueueSettings)) -> Delivery {
    let mut settings = DeliverySettings::default();
    settings.retry_on_failure.initial_interval = Duration::from_millis(1).into();
    settings.retry_on_failure.max_interval = Duration::from_millis(1).into();
    settings.retry_on_failure.max_elapsed_time = Duration::ZERO.into();
    settings.sending_queue.num_consumers = 1;
    change(&mut settings.sending_queue);
    settings.delivery()
}

fn storage(folder: &Path, when_full: WhenFull) -> Arc<Storage> {
    let storage = Storage::new(StorageOptions {
        directory: folder.to_owned(),
        create_directory: true,
        fsync: FsyncPolicy::Never,
        max_bytes: 16 << 20,
        when_full,
    });
    storage.lock().unwrap();
    Arc::new(storage)
}

async fn rig(folder: &Path, targets: &[&Target]) -> Rig {
    let storage = storage(folder, WhenFull::Block);
    Rig::with_storage(Some(storage), stored(|_| {}), targets).await
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let logs = std::fs::read_dir(folder)
        .unwrap()
        .map(|it| it.unwrap().path());
    let logs = logs.filter(|it| it.is_dir());
    let files = logs.flat_map(|log| std::fs::read_dir(log).unwrap());
    let files = files.map(|it| it.unwrap().path());
    files
        .filter(|it| it.extension().is_some_and(|it| it == "segment"))
        .collect()
}

const BATCHES: usize = 200;

type Outcomes = Vec<Arc<Mutex<Option<Outcome>>>>;

/// Sends batches for a dead destination and another one.
async fn send_watched(running: &Rig) -> Outcomes {
    let mut outcomes = Vec::new();
    for _ in 0..BATCHES {
        let mut batch = batch_to(&[("dead", 1), ("b", 1)]);
        let outcome = Arc::new(Mutex::new(None));
        outcomes.push(Arc::clone(&outcome));
        let report = move |it| *outcome.lock() = Some(it);
        batch.finalizers.add(Finalizer::new(report));
        running.sender.consume(batch).await.unwrap();
    }
    outcomes
}

fn are_all(outcomes: &Outcomes, expected: Outcome) -> bool {
    outcomes.iter().all(|it| *it.lock() == Some(expected))
}

#[tokio::test]
async fn a_dead_destination_delays_no_other_and_its_batches_move_after_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let (a, dead) = (Target::good("a"), Target::dead("dead"));
    let running = rig(folder.path(), &[&a, &dead]).await;
    for _ in 0..BATCHES {
        running.send(&[("dead", 1), ("a", 2)]).await.unwrap();
    }
    wait_until("the other to get all", async || a.samples() == 2 * BATCHES).await;
    assert_eq!(running.sender.progress().waiting, BATCHES as u64);
    // In the first run only the dead one's batches stay.
    let balance = running.stop().await;
    assert_eq!(balance, "divided: delivered=400 stored=200");

    // The next run does not know it.
    let b = Target::good("b");
    let running = rig(folder.path(), &[&b]).await;
    running.settle().await;
    assert_eq!((a.samples(), b.samples()), (2 * BATCHES, BATCHES));
    let balance = running.stop().await;
    assert_eq!(balance, "divided: recovered=200 delivered=200");
    assert!(files(folder.path()).is_empty());
}

#[tokio::test]
async fn what_waits_for_a_removed_destination_goes_to_others() {
    let folder = tempfile::tempdir().unwrap();
    let (a, b, dead) = (Target::good("a"), Target::good("b"), Target::dead("dead"));
    let running = rig(folder.path(), &[&a, &b, &dead]).await;
    let outcomes = send_watched(&running).await;
    wait_until("attempts to fail", async || dead.sink.offered() >= 2).await;
    running.change(&[&a, &b]).await;
    running.settle().await;
    assert_eq!((a.samples(), b.samples()), (BATCHES, BATCHES));
    assert!(are_all(&outcomes, Outcome::Delivered));
    assert_eq!(running.stop().await, "divided: delivered=400");
    assert!(files(folder.path()).is_empty());
}

/// Also of those that are parked: nothing of the queue is left.
#[tokio::test]
async fn at_the_end_all_batches_have_an_outcome() {
    let folder = tempfile::tempdir().unwrap();
    let (b, dead) = (Target::good("b"), Target::dead("dead"));
    let running = rig(folder.path(), &[&b, &dead]).await;
    let outcomes = send_watched(&running).await;
    wait_until("the other to get all", async || b.samples() == BATCHES).await;
    assert_eq!(running.stop().await, "divided: delivered=200 stored=200");
    assert!(are_all(&outcomes, Outcome::Lost));
}

#[tokio::test]
async fn a_destination_that_comes_back_gets_what_waited() {
    let folder = tempfile::tempdir().unwrap();
    let refusals = (0..50).map(|_| Refusal::retry("starting"));
    let late = Target::new("late", Sink::refusing(refusals));
    let running = rig(folder.path(), &[&late]).await;
    for samples in 1..=BATCHES {
        running.send(&[("late", samples)]).await.unwrap();
    }
    running.settle().await;
    let mut accepted = late.sink.accepted();
    accepted.sort_unstable();
    assert_eq!(accepted, (1..=BATCHES).collect::<Vec<_>>());
    running.stop().await;
}

/// Destinations change while batches come and others wait.
#[tokio::test]
async fn nothing_is_lost_or_sent_twice_while_destinations_change() {
    let folder = tempfile::tempdir().unwrap();
    let good = [Target::good("a"), Target::good("b"), Target::good("c")];
    let dead = [Target::dead("d"), Target::dead("e")];
    let [a, b, c] = &good;
    let [d, e] = &dead;
    let running = rig(folder.path(), &[a, b, c, d, e]).await;
    let changes: [&[&Target]; 6] = [
        &[a, c, d, e],
        &[a, b, c, e],
        &[d, e],
        &[a, d],
        &[d],
        &[a, b, c],
    ];
    let mut sent = 0;
    for targets in changes {
        for _ in 0..40 {
            let parts = [("a", 1), ("b", 1), ("c", 1), ("d", 1), ("e", 1)];
            running.send(&parts).await.unwrap();
            sent += parts.len();
        }
        running.change(targets).await;
    }
    running.settle().await;
    let arrived: usize = good.iter().map(Target::samples).sum();
    assert_eq!(arrived, sent);
    assert_eq!(running.stop().await, format!("divided: delivered={sent}"));
}

/// It was stored for one destination, and now belongs to two; one of them is dead.
#[tokio::test]
async fn a_stored_batch_is_divided_again() {
    let folder = tempfile::tempdir().unwrap();
    let dead = Target::dead("dead");
    let running = rig(folder.path(), &[&dead]).await;
    for _ in 0..10 {
        running
            .send(&[("dead", 1), ("a", 2), ("b", 4)])
            .await
            .unwrap();
    }
    assert_eq!(running.stop().await, "divided: delivered=0 stored=70");
    let (a, b, dead) = (Target::good("a"), Target::good("b"), Target::dead("dead"));
    let running = rig(folder.path(), &[&a, &b, &dead]).await;
    wait_until("the parts of the others", async || {
        (a.samples(), b.samples()) == (20, 40)
    })
    .await;
    // Only what the dead one has not got moves.
    running.change(&[&a, &b]).await;
    running.settle().await;
    assert_eq!((a.samples(), b.samples()), (30, 40));
    assert_eq!(running.stop().await, "divided: recovered=70 delivered=70");
}

#[tokio::test]
async fn the_oldest_make_room_even_if_their_destination_has_none() {
    let folder = tempfile::tempdir().unwrap();
    let (a, dead) = (Target::good("a"), Target::dead("dead"));
    let storage = storage(folder.path(), WhenFull::DropOldest);
    let delivery = stored(|queue| queue.queue_size = 20);
    let running = Rig::with_storage(Some(storage), delivery, &[&a, &dead]).await;
    for samples in 1..=50 {
        running.send(&[("dead", samples)]).await.unwrap();
    }
    running.send(&[("a", 7)]).await.unwrap();
    wait_until("the other to get it", async || a.samples() == 7).await;
    let balance = running.stop().await;
    // At most two are in its hands; with them the newest stay, but one for the other destination.
    let all = 50 * 51 / 2;
    let number = |key: &str| -> usize {
        let after = balance.split(key).nth(1).unwrap();
        after.split(' ').next().unwrap().parse().unwrap()
    };
    assert_eq!(number("stored=") + number("evicted="), all, "{balance}");
    let newest: usize = (34..=50).sum();
    assert!(
        (newest..newest + 120).contains(&number("stored=")),
        "{balance}"
    );
}

#[tokio::test]
async fn a_damaged_batch_that_waits_is_counted() {
    let folder = tempfile::tempdir().unwrap();
    let (a, dead) = (Target::good("a"), Target::dead("dead"));
    let running = rig(folder.path(), &[&a, &dead]).await;
    for _ in 0..10 {
        running.send(&[("dead", 1)]).await.unwrap();
    }
    running.send(&[("a", 1)]).await.unwrap();
    wait_until("all to be read", async || a.samples() == 1).await;
    let [segment] = &files(folder.path())[..] else {
        panic!("one segment");
    };
    let mut bytes = std::fs::read(segment).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(segment, bytes).unwrap();
    running.change(&[&a]).await;
    running.settle().await;
    assert_eq!(running.stop().await, "divided: delivered=10 corrupt=1");
}

#[tokio::test]
async fn live_batches_are_stored_too() {
    let folder = tempfile::tempdir().unwrap();
    let targets: Vec<_> = ["a", "b", "c"].map(Target::dead).into();
    let all: Vec<_> = targets.iter().collect();
    let running = rig(folder.path(), &all).await;
    for _ in 0..30 {
        let batch = batch_to(&[("a", 1), ("b", 1), ("c", 1)]);
        running
            .sender
            .consume(Batch::live(batch.profiles))
            .await
            .unwrap();
    }
    wait_until("all to be stored", async || {
        running.sender.progress().waiting == 90
    })
    .await;
    assert_eq!(running.stop().await, "divided: delivered=0 stored=90");
}

#[tokio::test]
async fn small_batches_are_merged() {
    let folder = tempfile::tempdir().unwrap();
    let a = Target::good("a");
    let storage = storage(folder.path(), WhenFull::Block);
    let merged = QueueBatchSettings {
        min_size: 20,
        flush_timeout: Duration::from_secs(60).into(),
        ..QueueBatchSettings::default()
    };
    let delivery = stored(|queue| queue.batch = merged.into());
    let running = Rig::with_storage(Some(storage), delivery, &[&a]).await;
    for _ in 0..40 {
        running.send(&[("a", 1)]).await.unwrap();
    }
    running.settle().await;
    assert_eq!(a.sink.accepted(), [20, 20]);
    running.stop().await;
    assert!(files(folder.path()).is_empty());
}

#[tokio::test]
async fn a_destination_has_as_many_exports_at_a_time_as_configured() {
    let folder = tempfile::tempdir().unwrap();
    let slow = Target::new("slow", Sink::default().taking(Duration::from_secs(3600)));
    let storage = storage(folder.path(), WhenFull::Block);
    let delivery = Delivery {
        timeout: None,
        ..stored(|queue| queue.num_consumers = 3)
    };
    let running = Rig::with_storage(Some(storage), delivery, &[&slow]).await;
    for _ in 0..5 {
        running.send(&[("slow", 1)]).await.unwrap();
    }
    wait_until("three exports", async || slow.sink.offered() == 3).await;
    assert_eq!(slow.samples(), 0);
}

/// An attempt may take its whole timeout.
#[tokio::test]
async fn after_a_refusal_during_the_stop_no_other_batch_is_tried() {
    let folder = tempfile::tempdir().unwrap();
    let dead = Target::dead("dead");
    let running = rig(folder.path(), &[&dead]).await;
    for _ in 0..5 {
        running.send(&[("dead", 1)]).await.unwrap();
    }
    let in_memory = async || running.queue_size() == 5.0;
    wait_until("all to be stored", in_memory).await;
    wait_until("an attempt to fail", async || dead.sink.offered() > 0).await;
    assert_eq!(running.stop().await, "divided: delivered=0 stored=5");
    let ids: HashSet<_> = dead
        .sink
        .offered_ids()
        .into_iter()
        .map(BatchId::to_bytes)
        .collect();
    assert_eq!(ids.len(), 1);
}

#[tokio::test]
async fn a_stop_does_not_last_until_its_deadline() {
    let folder = tempfile::tempdir().unwrap();
    let (a, dead) = (Target::good("a"), Target::dead("dead"));
    let mut running = rig(folder.path(), &[&a, &dead]).await;
    for _ in 0..5 {
        running.send(&[("a", 1), ("dead", 1)]).await.unwrap();
    }
    running.sender.close(closing(Duration::from_secs(3600)));
    let ended = tokio::time::timeout(Duration::from_secs(60), running.running.join_next());
    assert!(ended.await.is_ok());
    let balance = running.sender.balance();
    assert_eq!(balance.delivered + balance.stored, 10, "{balance}");
}

#[test]
fn a_queue_without_a_place_has_no_room() {
    let settings = QueueSettings {
        queue_size: 2,
        ..QueueSettings::for_live_sources()
    };
    let room = Arc::new(SharedCapacity::default());
    room.set_limit(3);
    let [first, second] = [(); 2].map(|()| {
        let queue = Queue::new(settings.clone(), "a", &Meter::default());
        queue.within(&room).with_memory(1 << 20)
    });
    let batch = batch_to(&[("a", 1)]);
    let held = [(); 2].map(|()| first.try_reserve(&batch).unwrap());
    assert!(!first.has_room(1) && second.has_room(1));
    // One is left for all queues.
    let last = second.try_reserve(&batch).unwrap();
    assert!(!second.has_room(1));
    drop(held);
    assert!(first.has_room(1) && second.has_room(1));
    drop(last);
}

#[test]
fn a_destination_has_few_bytes_in_memory_but_always_one_batch() {
    let (large, small) = (batch_to(&[("a", 100)]), batch_to(&[("a", 1)]));
    let bytes = |batch: &Batch| batch.profiles.encoded_len() as u64;
    let settings = QueueSettings::for_live_sources();
    let limit = bytes(&large) - 1;
    let queue = Queue::new(settings, "a", &Meter::default()).with_memory(limit);
    assert!(queue.has_room(bytes(&large)));
    let held = queue.try_reserve(&large).unwrap();
    assert!(!queue.has_room(bytes(&small)));
    assert!(queue.try_reserve(&small).is_err());
    drop(held);
    let _held = queue.try_reserve(&small).unwrap();
    assert!(queue.has_room(bytes(&small)) && !queue.has_room(limit));
    assert!(queue.try_reserve(&small).is_ok());
    assert!(queue.try_reserve(&large).is_err());
    queue.close();
    assert!(!queue.has_room(1));
}
