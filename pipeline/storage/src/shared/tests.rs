//! Queues that share bodies, on a simulated disk: random schedules, and each rule on its own.
//!
//! `PROFCOL_STORAGE_SEED=n` reruns one schedule, `PROFCOL_STORAGE_SCHEDULES=n` runs more of them.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;

use crate::directory::{FsyncPolicy, Storage, StorageOptions, WhenFull};
use crate::format::{RECORD_HEADER, REFERENCE, SEGMENT_HEADER, SETTLED_ENTRY};
use crate::log::{AppendError, Damage, FullCause, Log, Next, RecordPosition, Recovered};
use crate::place::Purpose;
use crate::segment::{records_name, settled_name};
use crate::simulated::{Faults, Random, SimulatedDisk};
use crate::tests::{counts_of, seeds};
use crate::{Counts, Disk};

const NAMES: [&str; 3] = ["a", "b", "c"];
const SCHEDULES: u64 = 500;
const STEPS: u64 = 150;

fn storage(disk: &SimulatedDisk, max_bytes: u64) -> Storage {
    let options = StorageOptions {
        directory: "simulated".into(),
        create_directory: false,
        fsync: FsyncPolicy::Always,
        max_bytes,
        when_full: WhenFull::Block,
    };
    Storage::simulated(options, disk.clone())
}

fn open(storage: &Storage, name: &str) -> (Log, Recovered) {
    storage.open(Purpose::Queue, name).unwrap()
}

fn logs<const N: usize>(storage: &Storage) -> [Log; N] {
    let mut names = NAMES.iter();
    std::array::from_fn(|_| open(storage, names.next().unwrap()).0)
}

fn body_of(number: u64) -> Vec<u8> {
    let mut random = Random(number);
    let words = 110 + random.below(190);
    (0..words)
        .flat_map(|_| random.next().to_le_bytes())
        .collect()
}

/// Heads differ between queues, as ids of batches do.
fn head_of(queue: usize, number: u64) -> Vec<u8> {
    [&number.to_le_bytes()[..], NAMES[queue].as_bytes()].concat()
}

fn number_of(head: &[u8]) -> u64 {
    u64::from_le_bytes(head[..8].try_into().unwrap())
}

// === schedules ===

/// A queue and its expected state.
#[derive(Default)]
struct Queue {
    /// `None` while its exporter is not configured.
    log: Option<Log>,
    to_store: VecDeque<u64>,
    numbers: BTreeMap<(u64, u32), u64>,
    /// Accepted and neither delivered nor dropped: must be delivered.
    waiting: BTreeSet<u64>,
    /// Part of `waiting` that a power loss may destroy.
    unsynced: BTreeSet<u64>,
    /// Their sync failed, so they can no longer become durable.
    at_risk: BTreeSet<u64>,
    in_flight: BTreeMap<u64, RecordPosition>,
    settled: BTreeSet<u64>,
    /// May be delivered: refused after writing, lost with the power, or settled without an entry on disk.
    may_come: BTreeSet<u64>,
}

struct Schedule {
    random: Random,
    disk: SimulatedDisk,
    max_bytes: u64,
    syncs_at_once: bool,
    faults: Faults,
    /// No failure or power loss so far.
    is_calm: bool,
    storage: Storage,
    queues: Vec<Queue>,
    next: u64,
    /// A sync failed in this process.
    failed_to_sync: bool,
}

impl Queue {
    fn is_settled(&mut self, number: u64) {
        self.waiting.remove(&number);
        self.unsynced.remove(&number);
        self.at_risk.remove(&number);
        self.may_come.remove(&number);
        self.settled.insert(number);
    }
}

impl Schedule {
    fn new(seed: u64) -> Self {
        let mut random = Random(seed);
        let disk = SimulatedDisk::new(random.next());
        let max_bytes = 20_000 + random.below(150_000);
        let syncs_at_once = random.happens(500);
        let faults = match random.below(3) {
            0 => Faults::default(),
            _ => Faults {
                append: random.below(60),
                sync: random.below(60),
                read: 0,
                remove: random.below(60),
            },
        };
        let queues = 2 + random.below(2);
        Self {
            storage: storage(&disk, max_bytes),
            queues: (0..queues).map(|_| Queue::default()).collect(),
            random,
            disk,
            max_bytes,
            syncs_at_once,
            is_calm: faults == Faults::default(),
            faults,
            next: 0,
            failed_to_sync: false,
        }
    }

    fn run(&mut self) {
        self.open_all();
        for _ in 0..STEPS {
            let queue = self.random.below(self.queues.len() as u64) as usize;
            match self.random.below(100) {
                0..20 => self.bring(),
                20..48 => self.append(queue),
                48..66 => _ = self.read(queue),
                66..84 => self.settle(queue),
                84..88 => self.drop_oldest(queue),
                88..92 => self.sync(queue),
                92..94 => self.fill_up(queue),
                94..96 => self.reload(queue),
                96..98 => self.restart(false),
                _ => self.restart(true),
            }
        }
        self.drain();
    }

    fn log(&mut self, queue: usize) -> Option<&mut Log> {
        self.queues[queue].log.as_mut()
    }

    /// A batch for all queues; sometimes the same bytes as an earlier one.
    fn bring(&mut self) {
        for queue in &mut self.queues {
            queue.to_store.push_back(self.next);
        }
        self.next += 1;
    }

    fn append(&mut self, at: usize) {
        let mut group = Vec::new();
        for _ in 0..1 + self.random.below(4) {
            let Queue {
                log: Some(log),
                to_store,
                ..
            } = &mut self.queues[at]
            else {
                return;
            };
            let Some(number) = to_store.pop_front() else {
                break;
            };
            let stored = log.append(counts_of(number), &head_of(at, number), &body_of(number));
            let queue = &mut self.queues[at];
            match stored {
                Ok(place) => {
                    queue.numbers.insert((place.segment, place.index), number);
                    group.push(number);
                }
                // It may have been written completely.
                Err(AppendError::Io(_) | AppendError::Full(FullCause::Disk)) => {
                    queue.may_come.insert(number);
                }
                Err(AppendError::Full(FullCause::MaxBytes) | AppendError::TooLarge { .. }) => {}
            }
        }
        let syncs_at_once = self.syncs_at_once;
        let queue = &mut self.queues[at];
        let Some(log) = &mut queue.log else { return };
        if syncs_at_once && log.unsynced().sync_or_stop().is_err() {
            log.withdraw();
            queue.may_come.extend(group);
            return;
        }
        log.publish();
        if !syncs_at_once {
            queue.unsynced.extend(&group);
        }
        queue.waiting.extend(group);
    }

    fn sync(&mut self, at: usize) {
        let queue = &mut self.queues[at];
        let Some(log) = &mut queue.log else { return };
        match log.unsynced().sync() {
            Ok(()) => queue.unsynced.clear(),
            Err(_) => {
                self.failed_to_sync = true;
                log.seal();
                queue.at_risk.append(&mut queue.unsynced);
            }
        }
    }

    fn read(&mut self, at: usize) -> bool {
        let is_calm = self.is_calm;
        let Some(log) = self.log(at) else {
            return false;
        };
        match log.read() {
            None => return false,
            Some(Next::Corrupt(corrupt)) => assert!(!is_calm, "{corrupt:?}"),
            Some(Next::Record { place, head, body }) => {
                let number = number_of(&head);
                assert_eq!(head, head_of(at, number), "of another queue");
                assert_eq!(body, body_of(number), "record {number}");
                assert_eq!(place.counts, counts_of(number));
                let Next::Record { body: again, .. } = log.read_again(&place) else {
                    panic!("record {number} is gone");
                };
                assert_eq!(again, body);
                let queue = &mut self.queues[at];
                let is_expected =
                    queue.waiting.contains(&number) || queue.may_come.contains(&number);
                assert!(is_expected, "record {number} delivered unexpectedly");
                let before = queue.in_flight.insert(number, place);
                assert!(before.is_none(), "record {number} delivered twice");
            }
        }
        true
    }

    fn settle(&mut self, at: usize) {
        let all: Vec<u64> = self.queues[at].in_flight.keys().copied().collect();
        let chosen = all.into_iter().filter(|_| self.random.happens(600));
        let chosen = chosen.collect();
        self.settle_all(at, chosen);
    }

    fn settle_all(&mut self, at: usize, numbers: Vec<u64>) {
        let queue = &mut self.queues[at];
        let places = numbers.iter().filter_map(|it| queue.in_flight.remove(it));
        let places: Vec<RecordPosition> = places.collect();
        if let Some(log) = &mut queue.log {
            log.settle(&places);
        }
        for number in numbers {
            queue.is_settled(number);
        }
    }

    fn drop_oldest(&mut self, at: usize) {
        let is_calm = self.is_calm;
        let queue = &mut self.queues[at];
        let dropped = queue.log.as_mut().and_then(Log::drop_oldest);
        match dropped {
            None => {}
            Some(Err(corrupt)) => assert!(!is_calm, "{corrupt:?}"),
            Some(Ok(place)) => {
                if let Some(number) = queue.numbers.get(&(place.segment, place.index)).copied() {
                    queue.is_settled(number);
                }
            }
        }
    }

    /// A full disk for a while.
    fn fill_up(&mut self, at: usize) {
        self.is_calm = false;
        let room = self.random.below(4000);
        self.disk.set_capacity(self.disk.bytes() + room);
        for _ in 0..self.random.below(6) {
            self.bring();
            self.append(at);
            self.read(at);
            self.settle(at);
        }
        self.disk.set_capacity(u64::MAX);
    }

    /// An exporter is removed, comes back, or is replaced.
    fn reload(&mut self, at: usize) {
        let queue = &mut self.queues[at];
        let was_open = queue.log.take().is_some();
        queue.in_flight.clear();
        // Of segments that could not be removed, or without entries.
        queue.may_come.extend(&queue.settled);
        if !was_open || self.random.happens(500) {
            self.open(at);
        }
    }

    fn open(&mut self, at: usize) {
        self.disk.set_faults(Faults::default());
        let (log, recovered) = open(&self.storage, NAMES[at]);
        self.disk.set_faults(self.faults);
        let queue = &mut self.queues[at];
        if self.is_calm {
            assert_eq!(recovered.stored.batches, queue.waiting.len() as u64);
            assert_eq!((recovered.torn_bytes, recovered.missing.batches), (0, 0));
        }
        queue.log = Some(log);
    }

    fn open_all(&mut self) {
        for at in 0..self.queues.len() {
            if self.random.happens(900) {
                self.open(at);
            }
        }
    }

    /// Kills the process, sometimes during a write, or cuts the power.
    fn restart(&mut self, loses_power: bool) {
        if self.random.happens(500) {
            self.disk.kill_after(self.random.below(8));
            self.is_calm = false;
            for at in 0..self.queues.len() {
                self.bring();
                self.append(at);
                self.settle(at);
            }
        }
        let failed_to_sync = std::mem::take(&mut self.failed_to_sync);
        for queue in &mut self.queues {
            queue.log = None;
            // The next process does not know, and its syncs succeed.
            if failed_to_sync {
                queue.at_risk.append(&mut queue.unsynced);
            }
        }
        if loses_power {
            self.is_calm = false;
            self.disk.lose_power();
        }
        for queue in &mut self.queues {
            if loses_power {
                let mut taken = std::mem::take(&mut queue.unsynced);
                taken.append(&mut queue.at_risk);
                queue.waiting.retain(|number| !taken.contains(number));
                queue.may_come.append(&mut taken);
            }
            queue.may_come.extend(&queue.settled);
            queue.in_flight.clear();
        }
        self.disk.restart();
        self.storage = storage(&self.disk, self.max_bytes);
        self.open_all();
    }

    /// Checks that all accepted records are delivered and nothing is left.
    fn drain(&mut self) {
        self.faults = Faults::default();
        self.disk.set_faults(self.faults);
        self.disk.restart();
        for at in 0..self.queues.len() {
            if self.queues[at].log.is_none() {
                self.open(at);
            }
            while self.read(at) {}
            let all: Vec<u64> = self.queues[at].in_flight.keys().copied().collect();
            self.settle_all(at, all);
            let waiting = &self.queues[at].waiting;
            assert!(waiting.is_empty(), "accepted and never read: {waiting:?}");
            self.log(at).unwrap().reclaim_active();
        }
        if self.is_calm {
            assert_eq!(self.disk.files(), 0, "all files are removed");
        }
        // Records of segments that could not be removed are delivered again.
        for _ in 0..2 {
            self.queues.clear();
            self.storage = storage(&self.disk, self.max_bytes);
            for name in NAMES {
                let (mut log, _) = open(&self.storage, name);
                while let Some(next) = log.read() {
                    if let Next::Record { place, .. } = next {
                        log.settle(&[place]);
                    }
                }
            }
        }
        assert_eq!(self.disk.files(), 0, "all files are removed");
    }
}

#[test]
fn no_schedule_loses_or_mixes_up_records_of_queues_that_share_bodies() {
    for seed in seeds(SCHEDULES) {
        let schedule = || Schedule::new(seed).run();
        if let Err(panic) = std::panic::catch_unwind(schedule) {
            let message = panic
                .downcast_ref::<String>()
                .map_or("panicked", String::as_str);
            panic!("PROFCOL_STORAGE_SEED={seed} reruns this schedule: {message}");
        }
    }
}

// === rules ===

/// A body of this length that no other number has.
fn body(number: u64, len: usize) -> Vec<u8> {
    number.to_le_bytes().into_iter().cycle().take(len).collect()
}

/// Stores bodies of this length, and publishes.
fn append(log: &mut Log, numbers: std::ops::Range<u64>, len: usize) {
    for number in numbers {
        let body = body(number, len);
        log.append(counts_of(number), &number.to_le_bytes(), &body)
            .unwrap();
    }
    log.publish();
}

/// Numbers and whether their bodies are intact; settles them.
fn drained(log: &mut Log) -> (Vec<u64>, u64) {
    let (mut numbers, mut corrupt) = (Vec::new(), 0);
    while let Some(next) = log.read() {
        match next {
            Next::Record { place, head, body } => {
                let number = number_of(&head);
                assert_eq!(body, self::body(number, body.len()));
                numbers.push(number);
                log.settle(&[place]);
            }
            Next::Corrupt(lost) => corrupt += lost.counts.batches.max(1),
        }
    }
    (numbers, corrupt)
}

const LARGE: u64 = 1 << 20;

#[test]
fn a_body_for_two_queues_is_written_once() {
    let disk = SimulatedDisk::new(1);
    let storage = storage(&disk, LARGE);
    let [mut a, mut b] = logs(&storage);
    append(&mut a, 0..20, 4000);
    assert_eq!(a.take_reused_bytes(), 0);
    append(&mut b, 0..20, 4000);
    assert_eq!(b.take_reused_bytes(), 20 * 4000);
    let record = RECORD_HEADER + 8;
    let own = 2 * (20 * (record + REFERENCE));
    let shared = 20 * (RECORD_HEADER + 4000);
    let segments = disk.files() / 2 * 2 * SEGMENT_HEADER;
    assert_eq!(disk.bytes(), (own + shared + segments) as u64);
    // As if each had its copy.
    let alone = 20 * (record + 4000) + 4 * SEGMENT_HEADER;
    assert_eq!((a.bytes(), b.bytes()), (alone as u64, alone as u64));
    let expected: Vec<u64> = (0..20).collect();
    assert_eq!(drained(&mut a), (expected.clone(), 0));
    assert_eq!(drained(&mut b), (expected, 0));
    for log in [&mut a, &mut b] {
        log.reclaim_active();
    }
    assert_eq!(disk.files(), 0);
}

#[test]
fn a_single_queue_and_small_bodies_are_stored_as_ever() {
    let disk = SimulatedDisk::new(1);
    let storage = storage(&disk, LARGE);
    let [mut a] = logs(&storage);
    append(&mut a, 0..3, 4000);
    let (mut b, _) = open(&storage, "b");
    append(&mut a, 3..6, super::MIN_BODY - 1);
    append(&mut b, 3..6, super::MIN_BODY - 1);
    assert_eq!(disk.folder(super::FOLDER).files(), 0);
    for queue in ["exporter_a", "exporter_b"] {
        disk.folder(queue).edit(&records_name(1), |bytes| {
            assert_eq!(bytes[8], 2, "the version of {queue}");
        });
    }
    append(&mut a, 6..7, super::MIN_BODY);
    assert_eq!(disk.folder(super::FOLDER).files(), 2);
    drop(b);
    append(&mut a, 7..8, 4000);
    assert_eq!(drained(&mut a), ((0..8).collect(), 0));
}

#[test]
fn what_one_queue_drops_the_other_still_has() {
    let disk = SimulatedDisk::new(1);
    let storage = storage(&disk, 64 << 10);
    let [mut a, mut b] = logs(&storage);
    let mut dropped = 0;
    for number in 0..100 {
        let body = body(number, 2000);
        // The first one never gets room by delivering.
        while a
            .append(counts_of(number), &number.to_le_bytes(), &body)
            .is_err()
        {
            a.drop_oldest().unwrap().unwrap();
            dropped += 1;
        }
        a.publish();
        append(&mut b, number..number + 1, 2000);
        if number % 20 == 19 {
            assert_eq!(drained(&mut b), ((number - 19..=number).collect(), 0));
        }
        assert!(disk.folder(super::FOLDER).bytes() <= 64 << 10);
    }
    assert!(dropped > 50, "{dropped}");
    assert_eq!(drained(&mut a), ((dropped..100).collect(), 0));
}

#[test]
fn a_dead_queue_never_makes_another_one_full() {
    let disk = SimulatedDisk::new(1);
    let storage = storage(&disk, 64 << 10);
    let [mut dead, mut b, mut c] = logs(&storage);
    let mut refused = 0;
    for number in 0..200 {
        let body = body(number, 2000);
        let stored = dead.append(counts_of(number), &number.to_le_bytes(), &body);
        refused += u64::from(stored.is_err());
        dead.publish();
        for log in [&mut b, &mut c] {
            append(log, number..number + 1, 2000);
            assert_eq!(drained(log), (vec![number], 0));
        }
    }
    assert!((1..200).contains(&refused), "{refused}");
    assert_eq!(drained(&mut dead).0.len() as u64, 200 - refused);
}

#[test]
fn shared_bodies_are_limited_and_then_copied() {
    let disk = SimulatedDisk::new(1);
    let max_bytes = 64 << 10;
    let storage = storage(&disk, max_bytes);
    let [mut dead, mut b] = logs(&storage);
    // Three of them fill a segment, and the dead queue holds it for one or two.
    for number in 0..80 {
        if number % 2 == 0 {
            append(&mut dead, number..number + 1, 1200);
        }
        append(&mut b, number..number + 1, 1200);
        assert_eq!(drained(&mut b), (vec![number], 0));
        let shared = disk.folder(super::FOLDER).bytes();
        assert!(shared <= max_bytes, "{shared} bytes");
    }
    let own = disk.folder("exporter_a").bytes();
    assert!(own > 10_000, "{own} bytes: there are no copies");
    assert_eq!(drained(&mut dead).0.len(), 40);
}

#[test]
fn bodies_that_cannot_be_shared_are_copied() {
    for failure in ["writes", "space"] {
        let disk = SimulatedDisk::new(1);
        let storage = storage(&disk, LARGE);
        let [mut a, mut b] = logs(&storage);
        append(&mut a, 0..5, 2000);
        append(&mut b, 0..5, 2000);
        match failure {
            "writes" => disk.break_folder(Some(super::FOLDER)),
            _ => {
                // Only the records of the queues have room.
                let used = disk.bytes();
                disk.set_capacity(used + 4 * SEGMENT_HEADER as u64 + 2 * 2500);
            }
        }
        append(&mut a, 5..6, 2000);
        let copied = a.take_reused_bytes() == 0;
        assert!(copied, "{failure}");
        disk.break_folder(None);
        disk.set_capacity(u64::MAX);
        append(&mut b, 5..6, 2000);
        append(&mut a, 6..8, 2000);
        append(&mut b, 6..8, 2000);
        assert_eq!(drained(&mut a), ((0..8).collect(), 0), "{failure}");
        assert_eq!(drained(&mut b), ((0..8).collect(), 0), "{failure}");
    }
}

#[test]
fn a_segment_that_cannot_be_removed_gets_no_new_references() {
    let disk = SimulatedDisk::new(1);
    let storage = storage(&disk, 64 << 10);
    let [mut a, mut b] = logs(&storage);
    append(&mut a, 0..1, 4000);
    disk.break_folder(Some(super::FOLDER));
    drained(&mut a);
    disk.break_folder(None);
    append(&mut b, 0..1, 4000);
    assert_eq!(b.take_reused_bytes(), 0);
    assert_eq!(drained(&mut b), (vec![0], 0));
    for log in [&mut a, &mut b] {
        log.reclaim_active();
    }
    assert_eq!(disk.folder(super::FOLDER).files(), 0);
}

#[test]
fn a_failed_sync_of_bodies_is_reported_to_each_queue_with_records_there() {
    let disk = SimulatedDisk::new(1);
    let storage = storage(&disk, LARGE);
    let [mut a, mut b, mut c] = logs(&storage);
    append(&mut a, 0..1, 2000);
    a.unsynced().sync().unwrap();
    append(&mut a, 1..2, 2000);
    append(&mut b, 1..2, 2000);
    append(&mut c, 2..3, 10);
    append(&mut a, 7..8, 10);
    disk.break_syncs(Some(super::FOLDER));
    assert!(a.unsynced().sync().is_err());
    a.seal();
    disk.break_syncs(None);
    // It is not dirty any more, and not durable.
    assert!(b.unsynced().sync().is_err());
    c.unsynced().sync().unwrap();
    // Later ones are written to another file.
    append(&mut a, 1..2, 2000);
    append(&mut b, 1..2, 2000);
    assert_eq!(b.take_reused_bytes(), 2 * 2000);
    a.unsynced().sync().unwrap();
    b.unsynced().sync().unwrap();
    drop((a, b, c));
    disk.lose_power();
    let storage = self::storage(&disk, LARGE);
    let [mut a, mut b, _c] = logs(&storage);
    let (numbers, _) = drained(&mut a);
    assert!(numbers.contains(&7), "it has its own body: {numbers:?}");
    assert!(numbers.ends_with(&[1]));
    assert!(drained(&mut b).0.ends_with(&[1]));
}

#[test]
fn bodies_that_another_queue_synced_are_durable() {
    let disk = SimulatedDisk::new(1);
    let storage = storage(&disk, LARGE);
    let [mut a, mut b] = logs(&storage);
    append(&mut a, 0..2, 2000);
    append(&mut b, 0..2, 2000);
    a.unsynced().sync().unwrap();
    // Only the first queue has it.
    append(&mut a, 2..3, 2000);
    disk.break_syncs(Some(super::FOLDER));
    b.unsynced().sync().unwrap();
    append(&mut b, 2..3, 2000);
    assert!(b.unsynced().sync().is_err());
    drop((a, b));
    disk.break_syncs(None);
    disk.lose_power();
    let storage = self::storage(&disk, LARGE);
    let [mut a, mut b] = logs(&storage);
    assert!(drained(&mut a).0.starts_with(&[0, 1]));
    assert!(drained(&mut b).0.starts_with(&[0, 1]));
}

/// Whatever survives of the queue's records, nothing is delivered without its body, and the loss is counted.
#[test]
fn records_whose_bodies_a_power_loss_took_are_counted() {
    let (mut missing, mut damaged) = (0, 0);
    for seed in 0..200 {
        let disk = SimulatedDisk::new(seed);
        let storage = storage(&disk, LARGE);
        let [mut a, mut b] = logs(&storage);
        append(&mut a, 0..3, 2000);
        append(&mut b, 0..3, 2000);
        a.unsynced().sync().unwrap();
        b.unsynced().sync().unwrap();
        append(&mut a, 3..4, 2000);
        append(&mut b, 3..4, 2000);
        drop((a, b));
        disk.lose_power();
        let storage = self::storage(&disk, LARGE);
        for name in ["a", "b"] {
            let (mut log, recovered) = open(&storage, name);
            let (numbers, corrupt) = drained(&mut log);
            assert!(numbers.starts_with(&[0, 1, 2]), "disk {seed}: {numbers:?}");
            assert_eq!(recovered.stored.batches, numbers.len() as u64 + corrupt);
            let lost = recovered.missing;
            assert!(numbers.len() as u64 + corrupt + lost.batches <= 4);
            if lost.batches > 0 {
                assert_eq!(lost, counts_of(3), "disk {seed}");
            }
            missing += lost.batches;
            damaged += corrupt;
        }
    }
    assert!(missing > 0, "no record outlasts its body");
    assert_eq!(damaged, 0, "what is torn there was cut off");
}

#[test]
fn a_removed_exporter_keeps_its_bodies_over_restarts() {
    let disk = SimulatedDisk::new(1);
    let first = storage(&disk, LARGE);
    let [mut a, mut b] = logs(&first);
    append(&mut a, 0..30, 4000);
    append(&mut b, 0..30, 4000);
    drop(b);
    assert_eq!(drained(&mut a), ((0..30).collect(), 0));
    drop((a, first));
    for _ in 0..2 {
        let next = storage(&disk, LARGE);
        let (mut a, _) = open(&next, "a");
        append(&mut a, 30..31, 4000);
        assert_eq!(drained(&mut a), (vec![30], 0));
    }
    let last = storage(&disk, LARGE);
    let [mut a, mut b] = logs(&last);
    assert_eq!(drained(&mut b), ((0..30).collect(), 0));
    for log in [&mut a, &mut b] {
        log.reclaim_active();
    }
    assert_eq!(disk.files(), 0);
}

#[test]
fn bodies_stay_while_a_queue_cannot_be_read() {
    for version in [0, 9] {
        let disk = SimulatedDisk::new(1);
        let first = storage(&disk, LARGE);
        let [mut a, mut b] = logs(&first);
        append(&mut a, 0..30, 4000);
        append(&mut b, 0..30, 4000);
        let bodies = disk.folder(super::FOLDER).files();
        assert!(bodies > 2);
        drained(&mut a);
        drop((a, b, first));
        let queue = disk.folder("exporter_b");
        let mut before = Vec::new();
        for name in [records_name(1), settled_name(1)] {
            queue.edit(&name, |bytes| {
                before.push(bytes.clone());
                bytes[8] = version;
                let check = crate::format::check(0, &bytes[..24]).to_le_bytes();
                bytes[24..32].copy_from_slice(&check);
                // Its own damage is not said here.
                bytes[0] ^= u8::from(version == 0);
            });
        }
        let next = storage(&disk, LARGE);
        let (a, _) = open(&next, "a");
        assert_eq!(next.open(Purpose::Queue, "b").is_err(), version == 9);
        drop((a, next));
        assert_eq!(disk.folder(super::FOLDER).files(), bodies);
        if version == 9 {
            for name in [settled_name(1), records_name(1)] {
                queue.edit(&name, |bytes| *bytes = before.pop().unwrap());
            }
            let last = storage(&disk, LARGE);
            let (mut b, _) = open(&last, "b");
            assert_eq!(drained(&mut b), ((0..30).collect(), 0));
        }
    }
}

#[test]
fn a_damaged_body_is_corrupt_in_each_queue_and_the_others_are_delivered() {
    let disk = SimulatedDisk::new(1);
    let first = storage(&disk, LARGE);
    let [mut a, mut b] = logs(&first);
    append(&mut a, 0..5, 4000);
    append(&mut b, 0..5, 4000);
    let bodies = disk.folder(super::FOLDER);
    let record = RECORD_HEADER + 4000;
    // The body of one, the header of another.
    bodies.edit(&records_name(1), |bytes| {
        bytes[SEGMENT_HEADER + RECORD_HEADER + 100] ^= 1;
        bytes[SEGMENT_HEADER + 2 * record + 20] ^= 1;
    });
    assert_eq!(drained(&mut a), (vec![1, 3, 4], 2));
    drop((a, b, first));
    // The next process, too.
    let next = storage(&disk, LARGE);
    let (mut b, recovered) = open(&next, "b");
    assert_eq!(recovered.stored.batches, 5);
    assert_eq!(drained(&mut b), (vec![1, 3, 4], 2));
    b.reclaim_active();
    assert_eq!(bodies.files(), 0);
}

#[test]
fn bodies_below_damaged_headers_are_corrupt_until_no_record_refers_to_them() {
    let disk = SimulatedDisk::new(1);
    let first = storage(&disk, LARGE);
    let [mut a, mut b] = logs(&first);
    append(&mut a, 0..30, 4000);
    append(&mut b, 0..30, 4000);
    drop((a, b, first));
    let bodies = disk.folder(super::FOLDER);
    for name in [records_name(1), settled_name(1)] {
        bodies.edit(&name, |bytes| bytes[0] ^= 1);
    }
    let next = storage(&disk, LARGE);
    let (mut a, recovered) = open(&next, "a");
    assert_eq!(recovered.stored.batches, 30);
    let (numbers, corrupt) = drained(&mut a);
    assert!(corrupt > 0 && numbers.len() as u64 + corrupt == 30);
    assert!(bodies.names().unwrap().contains(&records_name(1)));
    let (mut b, _) = open(&next, "b");
    assert_eq!(drained(&mut b), (numbers, corrupt));
    assert!(!bodies.names().unwrap().contains(&records_name(1)));
}

/// Not the body of another run's segment with the same number.
#[test]
fn queues_with_nothing_in_common_store_copies_until_they_have() {
    let disk = SimulatedDisk::new(1);
    let storage = storage(&disk, 64 << 20);
    let [mut a, mut b] = logs(&storage);
    let bodies = disk.folder(super::FOLDER);
    let grows_by = |log: &mut Log, number: u64| {
        let before = bodies.bytes();
        append(log, number..number + 1, super::MIN_BODY);
        let after = bodies.bytes();
        assert_eq!(drained(log), (vec![number], 0));
        after - before
    };
    let limit = super::RECENT as u64;
    for number in 0..limit {
        assert!(grows_by(&mut a, number) > 0, "{number}");
    }
    assert_eq!(grows_by(&mut a, limit), 0);
    assert_eq!(grows_by(&mut b, limit + 1), 0);
    // A batch that the other one has: the next ones are shared again.
    assert!(grows_by(&mut b, limit) > 0);
    assert!(grows_by(&mut a, limit + 2) > 0);
    assert_eq!(grows_by(&mut b, limit + 2), 0);
    assert_eq!(b.take_reused_bytes(), super::MIN_BODY as u64);
}

#[test]
fn a_reference_to_a_segment_that_was_removed_leads_nowhere() {
    let disk = SimulatedDisk::new(1);
    let first = storage(&disk, LARGE);
    let [mut a, mut b] = logs(&first);
    append(&mut a, 0..2, 4000);
    append(&mut b, 0..2, 4000);
    drop((a, b, first));
    let bodies = disk.folder(super::FOLDER);
    for name in bodies.names().unwrap() {
        bodies.remove(&name).unwrap();
    }
    // The second queue is not configured meanwhile.
    let next = storage(&disk, LARGE);
    let (mut a, recovered) = open(&next, "a");
    let mut lost = counts_of(0);
    lost += counts_of(1);
    assert_eq!((recovered.missing, recovered.torn_bytes), (lost, 0));
    let (mut c, _) = open(&next, "c");
    append(&mut a, 2..4, 4000);
    append(&mut c, 2..4, 4000);
    assert!(bodies.names().unwrap().contains(&records_name(1)));
    drop((a, c, next));
    let last = storage(&disk, LARGE);
    let (mut b, recovered) = open(&last, "b");
    assert_eq!((recovered.missing, recovered.torn_bytes), (lost, 0));
    assert_eq!(
        (recovered.stored, drained(&mut b)),
        (Counts::default(), (vec![], 0))
    );
    let (mut c, _) = open(&last, "c");
    assert_eq!(drained(&mut c), (vec![2, 3], 0));
}

#[test]
fn withdrawn_records_give_back_their_share() {
    let disk = SimulatedDisk::new(1);
    let storage = storage(&disk, LARGE);
    let [mut a, mut b] = logs(&storage);
    append(&mut a, 0..1, 2000);
    append(&mut b, 0..1, 2000);
    let before = (a.bytes(), a.stored());
    a.append(counts_of(1), b"head", &[1; 3000]).unwrap();
    assert_eq!(a.bytes(), before.0 + (RECORD_HEADER + 4 + 3000) as u64);
    a.withdraw();
    assert_eq!((a.bytes(), a.stored()), before);
    assert_eq!(drained(&mut a), (vec![0], 0));
    assert_eq!(drained(&mut b), (vec![0], 0));
}

#[test]
fn a_full_queue_is_as_full_as_with_copies() {
    for max_bytes in [30_000, 31_000, 32_000, 33_000] {
        let stored = |queues: usize| {
            let disk = SimulatedDisk::new(1);
            let storage = storage(&disk, max_bytes);
            let mut logs: Vec<Log> = NAMES[..queues]
                .iter()
                .map(|name| open(&storage, name).0)
                .collect();
            let mut stored = 0_u64;
            while logs[0]
                .append(counts_of(stored), b"head", &body(stored, 1500))
                .is_ok()
            {
                stored += 1;
            }
            (stored, logs[0].bytes() + stored * SETTLED_ENTRY as u64)
        };
        assert_eq!(stored(1), stored(2), "{max_bytes}");
    }
}

#[test]
fn a_directory_of_bodies_that_cannot_be_listed_is_an_error_and_not_a_loss() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join(super::FOLDER), "a file").unwrap();
    let storage = Storage::new(StorageOptions {
        directory: folder.path().to_owned(),
        create_directory: true,
        fsync: FsyncPolicy::Never,
        max_bytes: LARGE,
        when_full: WhenFull::Block,
    });
    let refused = storage.open(Purpose::Queue, "a").err().unwrap();
    let expected = io::Error::from_raw_os_error(20).to_string();
    assert!(refused.to_string().ends_with(&expected), "{refused}");
}

/// Although others of the same segment wait, and whether or not it is the last one.
#[test]
fn a_missing_body_is_counted_once_and_the_others_are_delivered() {
    for len in [4000, 1200] {
        let disk = SimulatedDisk::new(1);
        let first = storage(&disk, LARGE);
        let [mut a, mut b] = logs(&first);
        append(&mut a, 0..3, len);
        append(&mut b, 0..3, len);
        drop((a, b, first));
        let bodies = disk.folder(super::FOLDER);
        bodies.edit(&records_name(1), |bytes| _ = bytes.pop());
        for name in ["a", "b"] {
            let (log, recovered) = open(&storage(&disk, LARGE), name);
            assert_eq!((recovered.missing, recovered.torn_bytes), (counts_of(2), 0));
            assert_eq!(recovered.stored.batches, 2);
            drop(log);
            let (mut log, recovered) = open(&storage(&disk, LARGE), name);
            assert_eq!(recovered.missing, Counts::default(), "counted again");
            assert_eq!(drained(&mut log), (vec![0, 1], 0));
        }
    }
}

/// Also at the end, where a damaged record would be a torn one.
#[test]
fn a_damaged_last_body_is_corrupt() {
    let disk = SimulatedDisk::new(1);
    let first = storage(&disk, LARGE);
    let [mut a, mut b] = logs(&first);
    append(&mut a, 0..3, 4000);
    append(&mut b, 0..2, 4000);
    append(&mut a, 3..4, 4000);
    drop((a, b, first));
    // Two records follow it in its file.
    disk.folder(super::FOLDER).edit(&records_name(1), |bytes| {
        bytes[SEGMENT_HEADER + 2 * RECORD_HEADER + 4000 + 100] ^= 1;
    });
    let (mut b, recovered) = open(&storage(&disk, LARGE), "b");
    assert_eq!(recovered.torn_bytes, 0);
    assert_eq!(
        (recovered.stored.batches, drained(&mut b)),
        (2, (vec![0], 1))
    );
}

#[test]
fn a_body_that_goes_missing_while_the_queue_is_open_is_named_as_such() {
    let disk = SimulatedDisk::new(1);
    let first = storage(&disk, LARGE);
    let [mut a, _b] = logs(&first);
    append(&mut a, 0..1, 4000);
    disk.folder(super::FOLDER).remove(&records_name(1)).unwrap();
    let Some(Next::Corrupt(corrupt)) = a.read() else {
        panic!("it is delivered");
    };
    assert_eq!(corrupt.damage, Damage::MissingBody);
    assert_eq!(corrupt.counts, counts_of(0));
}
