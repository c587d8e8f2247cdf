//! Scripted readings of the memory in use: what is admitted, refused and freed, and how much work runs at a time.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::sync::mpsc;

use tokio::sync::oneshot;
use tokio::task::JoinSet;

use super::*;

const LIMIT: u64 = 1000;

fn exhausted(wanted: u64, in_use: u64) -> Exhausted {
    Exhausted {
        wanted,
        in_use,
        limit: LIMIT,
    }
}

#[test]
fn takes_until_the_limit_is_reached() {
    let admission = Admission::with_memory_reader(|| Some(400), LIMIT);
    let reserved = admission.reserve(300).unwrap();
    admission.take(300).unwrap();
    // A new reading frees what was taken but is no longer in use.
    admission.take(300).unwrap();
    assert_eq!(admission.take(301), Err(exhausted(301, 700)));
    drop(reserved);
    admission.take(600).unwrap();
}

#[test]
fn counts_reservations_until_dropped() {
    let admission = Admission::with_memory_reader(|| Some(0), LIMIT);
    let first = admission.reserve(600).unwrap();
    assert_eq!(admission.reserve(500).unwrap_err(), exhausted(500, 600));
    drop(first);
    admission.reserve(500).unwrap();
}

#[test]
fn resizes_a_reservation_by_the_difference() {
    let admission = Admission::with_memory_reader(|| Some(0), LIMIT);
    let mut buffer = admission.reserve(100).unwrap();
    buffer.resize(1000).unwrap();
    assert_eq!(buffer.resize(1001), Err(exhausted(1, 1000)));
    assert_eq!(admission.take(1), Err(exhausted(1, 1000)));
    buffer.resize(300).unwrap();
    admission.reserve(701).unwrap_err();
    admission.reserve(700).unwrap();
}

#[test]
fn spent_bytes_of_a_reservation_count_once_they_are_read() {
    static IN_USE: AtomicU64 = AtomicU64::new(0);
    let admission = Admission::with_memory_reader(|| Some(IN_USE.load(SeqCst)), LIMIT);
    let mut buffer = admission.reserve(600).unwrap();
    buffer.spend(400);
    IN_USE.store(400, SeqCst);
    assert_eq!(admission.take(401), Err(exhausted(401, 600)));
    buffer.resize(601).unwrap_err();
    buffer.resize(600).unwrap();
    drop(buffer);
    admission.reserve(600).unwrap();
}

#[test]
fn nothing_always_fits() {
    let admission = Admission::with_memory_reader(|| Some(LIMIT + 1), LIMIT);
    admission.take(0).unwrap();
    admission.reserve(0).unwrap();
    admission.take(1).unwrap_err();
}

#[test]
fn reads_memory_rarely_while_there_is_plenty() {
    static READINGS: AtomicUsize = AtomicUsize::new(0);
    let read = || {
        READINGS.fetch_add(1, SeqCst);
        Some(0)
    };
    let admission = Admission::with_memory_reader(read, u64::MAX - 1);
    let began = Instant::now();
    for _ in 0..10_000 {
        admission.take(1).unwrap();
    }
    let most = 1 + began.elapsed().as_millis() / MAX_AGE.as_millis();
    assert!((1..=most).contains(&(READINGS.load(SeqCst) as u128)));
}

#[tokio::test(start_paused = true)]
async fn reports_memory_in_use() {
    static READINGS: AtomicUsize = AtomicUsize::new(0);
    let read = || Some(READINGS.fetch_add(1, SeqCst) as u64);
    let admission = Admission::with_memory_reader(read, LIMIT);
    let hour = Duration::from_secs(3600);
    assert_eq!(admission.memory_in_use(hour), Some(0));
    assert_eq!(admission.memory_in_use(hour), Some(0));
    tokio::time::advance(Duration::from_millis(2)).await;
    assert_eq!(
        admission.memory_in_use(Duration::from_millis(1)),
        Some(1),
        "the first reading is too old"
    );
}

#[test]
fn freed_memory_is_returned_before_a_refusal() {
    static IS_RELEASED: AtomicBool = AtomicBool::new(false);
    static RELEASES: AtomicUsize = AtomicUsize::new(0);
    let read = || Some(if IS_RELEASED.load(SeqCst) { 100 } else { 900 });
    let release = || {
        RELEASES.fetch_add(1, SeqCst);
        IS_RELEASED.store(true, SeqCst);
    };
    let admission = Admission::with(read, release, LIMIT);
    admission.take(100).unwrap();
    assert_eq!(RELEASES.load(SeqCst), 0);
    admission.take(500).unwrap();
    assert_eq!(RELEASES.load(SeqCst), 1);
    let began = Instant::now();
    for _ in 0..1000 {
        admission.take(901).unwrap_err();
    }
    let most = 2 + began.elapsed().as_millis() / RELEASE_INTERVAL.as_millis();
    assert!(
        RELEASES.load(SeqCst) as u128 <= most,
        "not for each refusal"
    );
}

#[test]
fn the_lowest_limit_counts() {
    let admission = Admission::with_memory_reader(|| Some(0), LIMIT);
    admission.lower_limit(500);
    admission.lower_limit(700);
    assert_eq!(admission.take(501).unwrap_err().limit, 500);
}

#[test]
fn counts_refusals_of_each_handle() {
    let admission = Admission::with_memory_reader(|| Some(0), LIMIT);
    let (refused, others) = ("refused", "others");
    let [refused, others] = [refused, others].map(|name| IntCounter::new(name, "-").unwrap());
    let one = admission.counting(refused.clone());
    let other = admission.counting(others.clone());
    let mut buffer = one.reserve(LIMIT as usize).unwrap();
    one.take(1).unwrap_err();
    buffer.resize(LIMIT as usize + 1).unwrap_err();
    assert_eq!((refused.get(), others.get()), (2, 0));
    other.take(1).unwrap_err();
    assert_eq!((refused.get(), others.get()), (2, 1));
}

#[test]
fn a_request_above_the_limit_is_final() {
    let admission = Admission::with_memory_reader(|| Some(900), LIMIT);
    assert!(!admission.take(LIMIT as usize).unwrap_err().is_final());
    assert!(admission.take(LIMIT as usize + 1).unwrap_err().is_final());
}

#[test]
fn bounds_reservations_where_memory_cannot_be_read() {
    let admission = Admission::with_memory_reader(|| None, LIMIT);
    let first = admission.reserve(600).unwrap();
    admission.reserve(600).unwrap_err();
    drop(first);
    admission.reserve(600).unwrap();
    assert_eq!(admission.memory_in_use(Duration::ZERO), None);
}

#[tokio::test]
async fn long_work_is_limited_to_the_number_of_cpus() {
    let admission = Admission::unlimited();
    let cpus = available_parallelism().unwrap().get();
    let (running, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let mut works = JoinSet::new();
    for _ in 0..cpus * 4 {
        let (admission, running, most) = (admission.clone(), running.clone(), most.clone());
        works.spawn(async move {
            let work = move || {
                most.fetch_max(running.fetch_add(1, SeqCst) + 1, SeqCst);
                // Long enough for others to start meanwhile.
                std::thread::sleep(Duration::from_millis(20));
                running.fetch_sub(1, SeqCst);
            };
            admission.run_blocking(work).await.unwrap();
        });
    }
    works.join_all().await;
    let most = most.load(SeqCst);
    assert!((1..=cpus).contains(&most), "{most} at a time");
}

#[tokio::test]
async fn abandoned_work_keeps_its_permit_until_done() {
    let admission = Admission::unlimited();
    let cpus = available_parallelism().unwrap().get();
    let mut gates = Vec::new();
    for _ in 0..cpus {
        let (gate, opened) = mpsc::channel::<()>();
        let (began, begun) = oneshot::channel();
        let work = admission.run_blocking(move || {
            began.send(()).unwrap();
            // A dropped gate also lets it continue.
            let _ = opened.recv();
        });
        tokio::select! {
            _ = work => unreachable!("the gate is closed"),
            begun = begun => begun.unwrap(),
        }
        gates.push(gate);
    }
    let next = admission.run_blocking(|| ());
    let waited = tokio::time::timeout(Duration::from_millis(50), next).await;
    assert!(waited.is_err(), "all permits are taken");
    drop(gates);
    admission.run_blocking(|| ()).await.unwrap();
}

#[test]
fn a_lone_request_proceeds_with_the_least_it_needs() {
    let admission = Admission::with_memory_reader(|| Some(0), LIMIT);
    let limit = LIMIT as usize;
    let mut other = admission.reserve(1).unwrap();
    let mut alone = admission.reservation();
    alone.resize_between(limit / 2, 2 * limit).unwrap_err();
    other.resize(0).unwrap();
    alone.resize_between(limit / 2, 2 * limit).unwrap();
    // No more than the least, and never over the limit.
    other.resize(limit / 2 + 1).unwrap_err();
    other.resize(limit / 2).unwrap();
    drop(other);
    alone.resize_between(limit + 1, 2 * limit).unwrap_err();
    // It gets more if there is room.
    alone.resize_between(1, limit).unwrap();
    admission.reserve(1).unwrap_err();
}
