//! Tests of the log on a failing disk with thousands of random schedules, and of each rule on its own.
//!
//! `PROFCOL_STORAGE_SEED=n` reruns one schedule, `PROFCOL_STORAGE_SCHEDULES=n` runs more of them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::format::{RECORD_HEADER, RECORD_MAGIC, SEGMENT_HEADER, SETTLED_ENTRY};
use crate::segment::{records_name, settled_name};
use crate::simulated::{Faults, Random, SimulatedDisk};
use crate::walk::CHUNK;
use crate::{AppendError, Counts, FullCause, Limits, Log, Next, RecordPosition};

const SCHEDULES: u64 = 2000;
const STEPS: u64 = 120;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    /// Syncs before accepting.
    Always,
    /// Syncs occasionally.
    Interval,
}

/// A log and its expected state, with records identified by number.
struct Schedule {
    random: Random,
    disk: SimulatedDisk,
    limits: Limits,
    mode: Mode,
    faults: Faults,
    /// No failure or power loss so far.
    is_calm: bool,
    /// A settled entry may not have reached the disk.
    forgets: bool,
    log: Log,
    bytes_at_start: u64,
    next: u64,
    numbers: BTreeMap<(u64, u32), u64>,
    /// Accepted and neither delivered nor dropped: must be delivered.
    waiting: BTreeSet<u64>,
    /// Part of `waiting` that a power loss may destroy.
    unsynced: BTreeSet<u64>,
    /// Their sync failed, so they can no longer become durable.
    at_risk: BTreeSet<u64>,
    in_flight: BTreeMap<u64, RecordPosition>,
    settled: BTreeSet<u64>,
    just_settled: BTreeSet<u64>,
    /// May be delivered: refused after writing, lost with the power, or settled without an entry on disk.
    may_come: BTreeSet<u64>,
}

/// A body of any length; some contain bytes that look like records.
fn body_of(number: u64) -> Vec<u8> {
    let mut random = Random(number);
    let len = random.below(900);
    let mut body: Vec<u8> = (0..len).map(|_| random.next() as u8).collect();
    if number.is_multiple_of(3) {
        body.extend(RECORD_MAGIC);
        body.push(b'r');
        body.extend(number.to_le_bytes().repeat(8));
    }
    body
}

pub(crate) fn counts_of(number: u64) -> Counts {
    Counts {
        batches: 1,
        samples: number % 7,
        source_samples: number % 11,
        plain_bytes: number % 13,
    }
}

impl Schedule {
    fn new(seed: u64) -> Self {
        let mut random = Random(seed);
        let disk = SimulatedDisk::new(random.next());
        let limits = Limits {
            max_bytes: 4000 + random.below(60_000),
            segment_bytes: 300 + random.below(6000),
        };
        let mode = match random.happens(500) {
            true => Mode::Always,
            false => Mode::Interval,
        };
        let faults = match random.below(3) {
            0 => Faults::default(),
            _ => Faults {
                append: random.below(60),
                sync: random.below(60),
                read: 0,
                remove: random.below(60),
            },
        };
        let (log, _) = Log::open(Arc::new(disk.clone()), limits).unwrap();
        disk.set_faults(faults);
        Self {
            random,
            disk,
            limits,
            mode,
            is_calm: faults == Faults::default(),
            forgets: faults != Faults::default(),
            faults,
            log,
            bytes_at_start: 0,
            next: 0,
            numbers: BTreeMap::new(),
            waiting: BTreeSet::new(),
            unsynced: BTreeSet::new(),
            at_risk: BTreeSet::new(),
            in_flight: BTreeMap::new(),
            settled: BTreeSet::new(),
            just_settled: BTreeSet::new(),
            may_come: BTreeSet::new(),
        }
    }

    fn run(&mut self) {
        for _ in 0..STEPS {
            match self.random.below(100) {
                0..45 => self.append(),
                45..68 => _ = self.read(),
                68..70 => self.read_again(),
                70..88 => self.settle(),
                88..91 => self.drop_oldest(),
                91..94 => self.sync(),
                94..96 => self.fill_up(),
                96..98 => self.restart(false),
                _ => self.restart(true),
            }
            // Removed files may reappear after a power loss.
            let bound = self.limits.max_bytes.max(self.bytes_at_start);
            let bytes = self.log.bytes();
            assert!(bytes <= bound, "{bytes} bytes of {bound}");
            if self.is_calm {
                assert_eq!(self.disk.bytes(), bytes, "size on disk");
            }
        }
        self.drain();
    }

    fn append(&mut self) {
        let mut group = Vec::new();
        for _ in 0..1 + self.random.below(4) {
            let number = self.next;
            self.next += 1;
            let head = number.to_le_bytes();
            match self.log.append(counts_of(number), &head, &body_of(number)) {
                Ok(place) => {
                    self.numbers.insert((place.segment, place.index), number);
                    group.push(number);
                }
                // It may have been written completely.
                Err(AppendError::Io(_) | AppendError::Full(FullCause::Disk)) => {
                    self.may_come.insert(number);
                }
                Err(AppendError::Full(FullCause::MaxBytes) | AppendError::TooLarge { .. }) => {}
            }
        }
        if self.mode == Mode::Always && self.log.unsynced().sync().is_err() {
            self.log.withdraw();
            self.may_come.extend(group);
            return;
        }
        self.log.publish();
        if self.mode == Mode::Interval {
            self.unsynced.extend(&group);
        }
        self.waiting.extend(group);
    }

    fn sync(&mut self) {
        match self.log.unsynced().sync() {
            Ok(()) => self.unsynced.clear(),
            Err(_) => {
                self.log.seal();
                self.at_risk.append(&mut self.unsynced);
            }
        }
    }

    fn read(&mut self) -> bool {
        match self.log.read() {
            None => return false,
            Some(Next::Corrupt(corrupt)) => assert!(!self.is_calm, "{corrupt:?}"),
            Some(Next::Record { place, head, body }) => {
                let number = u64::from_le_bytes(head.try_into().unwrap());
                assert_eq!(body, body_of(number), "record {number}");
                assert_eq!(place.counts, counts_of(number));
                let is_expected = self.waiting.contains(&number) || self.may_come.contains(&number);
                let settled = self.settled.contains(&number);
                assert!(
                    is_expected,
                    "record {number} delivered unexpectedly, settled: {settled}"
                );
                let before = self.in_flight.insert(number, place);
                assert!(before.is_none(), "record {number} delivered twice");
            }
        }
        true
    }

    /// What was read and is not settled can be read again, wherever the reader is by now.
    fn read_again(&mut self) {
        let chosen = self.random.below(self.in_flight.len().max(1) as u64) as usize;
        let Some((number, place)) = self.in_flight.iter().nth(chosen) else {
            return;
        };
        match self.log.read_again(place) {
            Next::Record {
                place: at, body, ..
            } => {
                assert_eq!((at, body), (*place, body_of(*number)));
            }
            Next::Corrupt(corrupt) => panic!("record {number}: {corrupt:?}"),
        }
    }

    fn settle(&mut self) {
        let all: Vec<u64> = self.in_flight.keys().copied().collect();
        let chosen: Vec<u64> = all
            .into_iter()
            .filter(|_| self.random.happens(600))
            .collect();
        self.settle_all(chosen);
    }

    fn settle_all(&mut self, numbers: Vec<u64>) {
        let places = numbers
            .iter()
            .filter_map(|number| self.in_flight.remove(number));
        self.log.settle(&places.collect::<Vec<RecordPosition>>());
        for number in numbers {
            self.is_settled(number);
        }
    }

    fn is_settled(&mut self, number: u64) {
        self.waiting.remove(&number);
        self.unsynced.remove(&number);
        self.at_risk.remove(&number);
        self.may_come.remove(&number);
        self.settled.insert(number);
        self.just_settled.insert(number);
    }

    fn drop_oldest(&mut self) {
        match self.log.drop_oldest() {
            None => {}
            Some(Err(corrupt)) => assert!(!self.is_calm, "{corrupt:?}"),
            Some(Ok(place)) => {
                let number = self.numbers.get(&(place.segment, place.index)).copied();
                assert!(number.is_some() || !self.is_calm, "{place:?}");
                if let Some(number) = number {
                    assert!(
                        !self.in_flight.contains_key(&number),
                        "record {number} is in flight"
                    );
                    self.is_settled(number);
                }
            }
        }
    }

    /// Simulates a full disk for a while.
    fn fill_up(&mut self) {
        self.is_calm = false;
        self.forgets = true;
        self.disk
            .set_capacity(self.disk.bytes() + self.random.below(2000));
        for _ in 0..self.random.below(6) {
            self.append();
            self.read();
            self.settle();
        }
        self.disk.set_capacity(u64::MAX);
    }

    /// Kills the process, sometimes during a write, or cuts the power.
    fn restart(&mut self, loses_power: bool) {
        self.just_settled.clear();
        if self.random.happens(500) {
            self.disk.kill_after(self.random.below(8));
            self.is_calm = false;
            self.append();
            self.settle();
            self.append();
            self.settle();
        }
        if loses_power {
            self.is_calm = false;
            let mut taken = std::mem::take(&mut self.unsynced);
            taken.append(&mut self.at_risk);
            self.waiting.retain(|number| !taken.contains(number));
            self.may_come.append(&mut taken);
            self.disk.lose_power();
        }
        self.forgets |= loses_power;
        match self.forgets {
            true => self.may_come.extend(&self.settled),
            false => self.may_come.append(&mut self.just_settled),
        }
        self.disk.restart();
        self.in_flight.clear();
        self.disk.set_faults(Faults::default());
        let (log, recovered) = Log::open(Arc::new(self.disk.clone()), self.limits).unwrap();
        self.disk.set_faults(self.faults);
        if self.is_calm {
            assert_eq!(recovered.stored.batches, self.waiting.len() as u64);
            assert_eq!(recovered.torn_bytes, 0);
        }
        let entries = log.stored().batches * SETTLED_ENTRY as u64;
        self.bytes_at_start = log.bytes() + entries;
        self.log = log;
    }

    /// Checks that all accepted records are delivered and nothing is left.
    fn drain(&mut self) {
        self.faults = Faults::default();
        self.disk.set_faults(self.faults);
        while self.read() {}
        self.read_again();
        let all: Vec<u64> = self.in_flight.keys().copied().collect();
        self.settle_all(all);
        assert!(
            self.waiting.is_empty(),
            "accepted and never read: {:?}",
            self.waiting
        );
        assert_eq!(self.log.stored(), Counts::default());
        self.disk.restart();
        let (mut log, _) = Log::open(Arc::new(self.disk.clone()), self.limits).unwrap();
        // Records of segments that could not be removed are delivered again.
        while let Some(next) = log.read() {
            assert!(self.forgets, "{next:?}");
            if let Next::Record { place, .. } = next {
                log.settle(&[place]);
            }
        }
        drop(log);
        Log::open(Arc::new(self.disk.clone()), self.limits).unwrap();
        assert_eq!(self.disk.files(), 0, "all files are removed");
    }
}

/// The seeds of the schedules to run, by default so many.
pub fn seeds(schedules: u64) -> std::ops::Range<u64> {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse().ok());
    match number("PROFCOL_STORAGE_SEED") {
        Some(seed) => seed..seed + 1,
        None => {
            let first = std::process::id().into();
            first..first + number("PROFCOL_STORAGE_SCHEDULES").unwrap_or(schedules)
        }
    }
}

#[test]
fn no_schedule_loses_duplicates_or_corrupts_accepted_records() {
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

fn limits(max_bytes: u64, segment_bytes: u64) -> Limits {
    Limits {
        max_bytes,
        segment_bytes,
    }
}

fn opened(disk: &SimulatedDisk, limits: Limits) -> Log {
    Log::open(Arc::new(disk.clone()), limits).unwrap().0
}

fn append(log: &mut Log, number: u64, len: usize) -> Result<RecordPosition, AppendError> {
    let place = log.append(
        counts_of(number),
        &number.to_le_bytes(),
        &vec![number as u8; len],
    );
    log.publish();
    place
}

/// Reads a record that is intact.
fn read_one(log: &mut Log) -> RecordPosition {
    let Some(Next::Record { place, .. }) = log.read() else {
        panic!("a record");
    };
    place
}

fn numbers_of(log: &mut Log) -> Vec<u64> {
    let mut numbers = Vec::new();
    while let Some(next) = log.read() {
        if let Next::Record { head, .. } = next {
            numbers.push(u64::from_le_bytes(head.try_into().unwrap()));
        }
    }
    numbers
}

#[test]
fn any_flipped_bit_costs_no_more_than_its_record_and_is_never_delivered() {
    for seed in 0..400 {
        let disk = SimulatedDisk::new(seed);
        let mut log = opened(&disk, limits(1 << 20, 2000));
        for number in 0..30 {
            append(&mut log, number, 100).unwrap();
        }
        drop(log);
        let name = disk.flip(if seed % 4 == 0 { "settled" } else { "segment" });
        disk.set_concurrent_readers(1 + seed as usize % 3);
        let (mut log, recovered) =
            Log::open(Arc::new(disk.clone()), limits(1 << 20, 2000)).unwrap();
        let mut corrupt = recovered.unreadable_segments + u64::from(recovered.torn_bytes > 0);
        let mut read = 0;
        while let Some(next) = log.read() {
            match next {
                Next::Record { head, body, .. } => {
                    let number = u64::from_le_bytes(head.try_into().unwrap());
                    assert_eq!(body, vec![number as u8; 100], "{name:?}");
                    read += 1;
                }
                Next::Corrupt(_) => corrupt += 1,
            }
        }
        assert!(read >= 29, "{read} of 30 after a flip in {name:?}");
        assert_eq!(read < 30, corrupt > 0, "{name:?}");
    }
}

#[test]
fn records_can_be_browsed_and_stay_in_the_log() {
    let disk = SimulatedDisk::new(1);
    let mut log = opened(&disk, limits(1 << 20, 2000));
    let mut places = Vec::new();
    for number in 0..30 {
        let len = 50 + number as usize * 10;
        places.push(append(&mut log, number, len).unwrap());
    }
    let segments: BTreeSet<u64> = places.iter().map(|place| place.segment).collect();
    assert!(segments.len() > 3);
    let mut number = 0_u64;
    for segment in segments {
        let mut browser = log.browse(segment).unwrap().unwrap();
        while let Some(record) = browser.next_record() {
            let record = record.unwrap();
            let len = 50 + number as usize * 10;
            assert_eq!(record.head, number.to_le_bytes());
            assert_eq!(browser.body(&record).unwrap(), vec![number as u8; len]);
            assert_eq!(record.counts(), counts_of(number));
            assert_eq!(record.index(), places[number as usize].index);
            number += 1;
        }
    }
    assert_eq!(number, 30);
    assert_eq!(numbers_of(&mut log).len(), 30);
}

#[test]
fn segments_are_recovered_by_several_threads_as_by_one() {
    let recovered_by = |readers| {
        let disk = SimulatedDisk::new(1);
        let limits = limits(1 << 20, 2000);
        let mut log = opened(&disk, limits);
        for number in 0..200 {
            append(&mut log, number, 100).unwrap();
        }
        let mut settled = Vec::new();
        for index in 0..150 {
            if let Some(Next::Record { place, .. }) = log.read()
                && index % 3 == 0
            {
                settled.push(place);
            }
        }
        log.settle(&settled);
        drop(log);
        disk.set_concurrent_readers(readers);
        let (mut log, recovered) = Log::open(Arc::new(disk), limits).unwrap();
        assert!(recovered.segments > 10);
        assert_eq!(recovered.stored.batches, 150);
        (recovered, log.bytes(), numbers_of(&mut log))
    };
    let by_one = recovered_by(1);
    for readers in [2, 8, 100] {
        assert_eq!(recovered_by(readers), by_one);
    }
}

#[test]
fn a_full_log_accepts_nothing_until_a_segment_is_settled() {
    let disk = SimulatedDisk::new(1);
    let mut log = opened(&disk, limits(4000, 1000));
    let mut stored = 0;
    let refused = loop {
        match append(&mut log, stored, 200) {
            Ok(_) => stored += 1,
            Err(refused) => break refused,
        }
        assert!(stored < 20, "never full");
    };
    assert!(
        matches!(refused, AppendError::Full(FullCause::MaxBytes)),
        "{refused}"
    );
    assert!(disk.bytes() <= 4000);
    // The oldest records are dropped until their segment can be removed.
    let mut dropped = 0;
    while append(&mut log, stored, 200).is_err() {
        log.drop_oldest().unwrap().unwrap();
        dropped += 1;
    }
    assert!((2..=4).contains(&dropped), "{dropped}");
    assert_eq!(
        numbers_of(&mut log),
        (dropped..=stored).collect::<Vec<u64>>()
    );
}

#[test]
fn a_record_larger_than_the_limit_is_permanently_refused() {
    let disk = SimulatedDisk::new(1);
    let mut log = opened(&disk, limits(4000, 1000));
    let refused = append(&mut log, 0, 4000).unwrap_err();
    assert!(matches!(refused, AppendError::TooLarge { .. }), "{refused}");
    // A record larger than a segment gets its own segment.
    append(&mut log, 1, 3000).unwrap();
    assert_eq!(numbers_of(&mut log), [1]);
}

#[test]
fn records_in_memory_are_skipped_without_reading() {
    let disk = SimulatedDisk::new(1);
    let mut log = opened(&disk, limits(1 << 20, 1000));
    let places: Vec<RecordPosition> = (0..12)
        .map(|number| append(&mut log, number, 300).unwrap())
        .collect();
    assert!(!log.take(&places[1]), "not the next record");
    for place in &places[..5] {
        assert!(log.take(place));
    }
    assert_eq!(numbers_of(&mut log), [5, 6, 7, 8, 9, 10, 11]);
    log.settle(&places);
    assert_eq!(log.stored(), Counts::default());
}

#[test]
fn unreadable_records_are_counted_and_the_rest_delivered() {
    let disk = SimulatedDisk::new(7);
    let mut log = opened(&disk, limits(1 << 20, 2000));
    for number in 0..50 {
        append(&mut log, number, 100).unwrap();
    }
    disk.set_faults(Faults {
        read: 30,
        ..Faults::default()
    });
    let (mut read, mut lost) = (0, 0);
    while let Some(next) = log.read() {
        match next {
            Next::Record { .. } => read += 1,
            Next::Corrupt(corrupt) => lost += corrupt.counts.batches,
        }
    }
    assert_eq!(read + lost, 50);
    assert!(lost > 0, "nothing failed");
    assert_eq!(log.stored().batches, read);
}

#[test]
fn a_segment_of_a_later_version_is_kept() {
    use crate::{Disk, OpenError};
    let disk = SimulatedDisk::new(1);
    let mut log = opened(&disk, limits(1 << 20, 1000));
    append(&mut log, 0, 10).unwrap();
    drop(log);
    let name = disk
        .names()
        .unwrap()
        .into_iter()
        .find(|name| name.ends_with("segment"))
        .unwrap();
    for name in [name.clone(), name.replace("segment", "settled")] {
        disk.edit(&name, |bytes| {
            bytes[8] = 4;
            let check = twox_hash::XxHash3_64::oneshot_with_seed(0, &bytes[..24]).to_le_bytes();
            bytes[24..32].copy_from_slice(&check);
        });
    }
    let refused = Log::open(Arc::new(disk.clone()), limits(1 << 20, 1000))
        .err()
        .unwrap();
    assert!(
        matches!(refused, OpenError::Version { version: 4, .. }),
        "{refused}"
    );
    assert_eq!(disk.files(), 2);
}

#[test]
fn a_record_that_is_damaged_after_it_was_read_is_not_returned_again() {
    let disk = SimulatedDisk::new(1);
    let limits = Limits {
        max_bytes: 1 << 20,
        segment_bytes: 1 << 16,
    };
    let (mut log, _) = Log::open(Arc::new(disk.clone()), limits).unwrap();
    log.append(counts_of(5), b"head", b"body").unwrap();
    log.publish();
    let place = read_one(&mut log);
    let Next::Record { head, body, .. } = log.read_again(&place) else {
        panic!("a record");
    };
    assert_eq!((&*head, &*body), (&b"head"[..], &b"body"[..]));
    // In the payload, then in the header.
    for from_end in [1, 30] {
        disk.edit(&records_name(place.segment), |bytes| {
            let at = bytes.len() - from_end;
            bytes[at] ^= 1;
        });
        let again = log.read_again(&place);
        assert!(
            matches!(again, Next::Corrupt(it) if it.counts == counts_of(5)),
            "{again:?}"
        );
    }
    // It still is in the log.
    assert_eq!(log.stored().batches, 1);
    log.settle(&[place]);
    assert_eq!(log.stored(), Counts::default());
}

/// Bytes that a record with a body of this length takes, with the entry that settles it.
fn needed(len: usize) -> u64 {
    (RECORD_HEADER + 8 + len + SETTLED_ENTRY) as u64
}

#[test]
fn max_bytes_is_used_to_the_last_byte() {
    let headers = 2 * SEGMENT_HEADER as u64;
    let exact = headers + needed(200) + needed(300);
    for (max_bytes, fits) in [(exact, true), (exact - 1, false)] {
        let mut log = opened(&SimulatedDisk::new(1), limits(max_bytes, 10_000));
        append(&mut log, 0, 200).unwrap();
        let second = append(&mut log, 1, 300);
        assert_eq!(second.is_ok(), fits, "{max_bytes}");
        let settled = SETTLED_ENTRY as u64 * log.stored().batches;
        assert!(log.bytes() + settled <= max_bytes);
        if let Err(refused) = second {
            assert!(
                matches!(refused, AppendError::Full(FullCause::MaxBytes)),
                "{refused}"
            );
        }
    }
    for (max_bytes, fits) in [
        (headers + needed(200), true),
        (headers + needed(200) - 1, false),
    ] {
        let mut log = opened(&SimulatedDisk::new(1), limits(max_bytes, 10_000));
        match append(&mut log, 0, 200) {
            Ok(_) => assert!(fits),
            Err(AppendError::TooLarge { needed: of, .. }) => {
                assert!(!fits);
                assert_eq!(of, needed(200));
            }
            Err(other) => panic!("{other}"),
        }
    }
}

#[test]
fn a_segment_is_filled_to_the_last_byte() {
    let record = RECORD_HEADER + 8 + 200;
    let exact = (SEGMENT_HEADER + 2 * record) as u64;
    for (segment_bytes, is_one) in [(exact, true), (exact - 1, false)] {
        let mut log = opened(&SimulatedDisk::new(1), limits(1 << 20, segment_bytes));
        let [first, second] = [0, 1].map(|number| append(&mut log, number, 200).unwrap());
        assert_eq!(first.segment == second.segment, is_one);
        let third = append(&mut log, 2, 1).unwrap();
        assert_ne!(third.segment, first.segment);
    }
}

#[test]
fn a_settled_segment_makes_room_although_it_is_written() {
    let disk = SimulatedDisk::new(1);
    let mut log = opened(&disk, limits(1000, 10_000));
    let place = append(&mut log, 0, 500).unwrap();
    assert!(append(&mut log, 1, 500).is_err());
    assert_eq!(numbers_of(&mut log), [0]);
    log.settle(&[place]);
    append(&mut log, 2, 500).unwrap();
    assert_eq!(numbers_of(&mut log), [2]);
}

#[test]
fn a_full_disk_is_told_from_a_failing_one() {
    let disk = SimulatedDisk::new(1);
    let mut log = opened(&disk, limits(1 << 20, 10_000));
    let place = append(&mut log, 0, 500).unwrap();
    disk.set_capacity(disk.bytes() + 100);
    let full = append(&mut log, 1, 500).unwrap_err();
    assert!(matches!(full, AppendError::Full(FullCause::Disk)), "{full}");
    // What is settled gives its space to the next record.
    assert_eq!(numbers_of(&mut log), [0]);
    log.settle(&[place]);
    append(&mut log, 2, 500).unwrap();
    assert_eq!(numbers_of(&mut log), [2]);
    disk.set_capacity(u64::MAX);
    disk.set_faults(Faults {
        append: 1000,
        ..Faults::default()
    });
    let failed = append(&mut log, 3, 500).unwrap_err();
    assert!(matches!(failed, AppendError::Io(_)), "{failed}");
}

#[test]
fn the_position_is_that_of_the_next_record() {
    let mut log = opened(&SimulatedDisk::new(1), limits(1 << 20, 1000));
    let places: Vec<_> = (0..6)
        .map(|number| append(&mut log, number, 300).unwrap())
        .collect();
    for (number, place) in places.iter().enumerate() {
        match number % 2 {
            0 => assert!(log.take(place)),
            _ => assert!(matches!(log.read(), Some(Next::Record { .. }))),
        }
        assert_eq!(log.position(), (place.segment, place.index + 1));
    }
    assert!(places[0].segment < places[5].segment);
}

#[test]
fn a_segment_with_a_damaged_header_is_counted_if_it_had_records() {
    for (records, expected) in [(0, 0), (3, 1)] {
        let disk = SimulatedDisk::new(1);
        let limits = limits(1 << 20, 10_000);
        let mut log = opened(&disk, limits);
        let place = append(&mut log, 0, 100).unwrap();
        for number in 1..records {
            append(&mut log, number, 100).unwrap();
        }
        drop(log);
        // Each file has the header of the other.
        for name in [records_name(place.segment), settled_name(place.segment)] {
            disk.edit(&name, |bytes| {
                bytes[0] ^= 1;
                if records == 0 {
                    bytes.truncate(SEGMENT_HEADER);
                }
            });
        }
        let (log, recovered) = Log::open(Arc::new(disk.clone()), limits).unwrap();
        assert_eq!(recovered.unreadable_segments, expected);
        assert_eq!(log.stored(), Counts::default());
        assert_eq!(disk.files(), 0);
    }
}

#[test]
fn unsynced_records_are_withdrawn_with_their_bytes_and_counts() {
    let disk = SimulatedDisk::new(1);
    let mut log = opened(&disk, limits(1 << 20, 10_000));
    append(&mut log, 1, 100).unwrap();
    let before = (log.bytes(), log.stored());
    assert_eq!(before.1, counts_of(1));
    for number in [2, 3] {
        log.append(counts_of(number), b"head", &[0; 50]).unwrap();
    }
    assert_eq!(log.stored().batches, 3);
    log.withdraw();
    assert_eq!((log.bytes(), log.stored()), before);
    assert_eq!(disk.bytes(), log.bytes());
    append(&mut log, 4, 10).unwrap();
    assert_eq!(numbers_of(&mut log), [1, 4]);
}

#[test]
fn the_oldest_segment_can_be_removed_with_its_records() {
    let disk = SimulatedDisk::new(1);
    let mut log = opened(&disk, limits(1 << 20, 1000));
    let places: Vec<_> = (0..7)
        .map(|number| append(&mut log, number, 300).unwrap())
        .collect();
    let segments: BTreeSet<u64> = places.iter().map(|place| place.segment).collect();
    let segments: Vec<u64> = segments.into_iter().collect();
    assert_eq!(log.segments().collect::<Vec<_>>(), segments);
    let (active, others) = segments.split_last().unwrap();
    for segment in others {
        let left = places.iter().filter(|place| place.segment > *segment);
        let stored = left.fold(Counts::default(), |mut stored, place| {
            stored += place.counts;
            stored
        });
        assert_eq!(log.remove_oldest().unwrap(), Some(*segment));
        assert_eq!(log.stored(), stored);
        assert_eq!(log.bytes(), disk.bytes());
    }
    assert_eq!(log.segments().collect::<Vec<_>>(), [*active]);
    assert_eq!(log.remove_oldest().unwrap(), None, "it is being written");
    assert_eq!(numbers_of(&mut log), [6]);
}

#[test]
fn a_segment_that_cannot_be_removed_counts_until_it_can() {
    let disk = SimulatedDisk::new(1);
    let mut log = opened(&disk, limits(1 << 20, 1000));
    for number in 0..9 {
        append(&mut log, number, 300).unwrap();
    }
    let settle = |log: &mut Log, count: usize| {
        let places: Vec<_> = (0..count).map(|_| read_one(log)).collect();
        log.settle(&places);
    };
    disk.set_faults(Faults {
        remove: 1000,
        ..Faults::default()
    });
    let before = log.bytes();
    settle(&mut log, 3);
    assert!(log.bytes() >= before);
    assert_eq!(log.bytes(), disk.bytes());
    disk.set_faults(Faults::default());
    settle(&mut log, 6);
    log.reclaim_active();
    assert_eq!((log.bytes(), disk.bytes(), disk.files()), (0, 0, 0));
}

#[test]
fn a_settled_record_leaves_an_entry_in_a_segment_that_stays() {
    let disk = SimulatedDisk::new(1);
    let limits = limits(1 << 20, 10_000);
    let mut log = opened(&disk, limits);
    for number in 0..3 {
        append(&mut log, number, 100).unwrap();
    }
    let before = log.bytes();
    let place = read_one(&mut log);
    log.settle(&[place]);
    assert!(log.bytes() > before);
    assert_eq!(log.bytes(), disk.bytes());
    drop(log);
    let (mut log, recovered) = Log::open(Arc::new(disk), limits).unwrap();
    assert_eq!(recovered.stored.batches, 2);
    assert_eq!(numbers_of(&mut log), [1, 2]);
}

/// Shortens a segment by this many bytes.
fn cut(disk: &SimulatedDisk, segment: u64, bytes: usize) {
    disk.edit(&records_name(segment), |content| {
        content.truncate(content.len() - bytes);
    });
}

#[test]
fn records_that_vanish_are_counted() {
    let disk = SimulatedDisk::new(1);
    let mut log = opened(&disk, limits(1 << 20, 10_000));
    let places: Vec<_> = (0..4)
        .map(|number| append(&mut log, number, 100).unwrap())
        .collect();
    cut(&disk, places[0].segment, RECORD_HEADER + 8 + 100 + 1);
    let mut lost = Counts::default();
    let mut read = 0;
    while let Some(next) = log.read() {
        match next {
            Next::Record { .. } => read += 1,
            Next::Corrupt(corrupt) => lost += corrupt.counts,
        }
    }
    assert_eq!((read, lost.batches), (2, 2));
    assert_eq!(log.stored().batches, 2, "in flight");
}

#[test]
fn only_the_newest_segment_has_a_torn_end() {
    for is_newest in [true, false] {
        let disk = SimulatedDisk::new(1);
        let limits = limits(1 << 20, 1000);
        let mut log = opened(&disk, limits);
        let places: Vec<_> = (0..6)
            .map(|number| append(&mut log, number, 300).unwrap())
            .collect();
        drop(log);
        let place = places[if is_newest { 5 } else { 0 }];
        cut(&disk, place.segment, 10);
        let (mut log, recovered) = Log::open(Arc::new(disk), limits).unwrap();
        let record = (RECORD_HEADER + 8 + 300) as u64;
        let torn = if is_newest { record - 10 } else { 0 };
        assert_eq!(recovered.torn_bytes, torn);
        assert_eq!(numbers_of(&mut log).len(), 5);
    }
}

#[test]
fn a_damaged_last_record_is_a_torn_end_and_does_not_count() {
    let disk = SimulatedDisk::new(1);
    let limits = limits(1 << 20, 10_000);
    let mut log = opened(&disk, limits);
    let places: Vec<_> = (1..4)
        .map(|number| append(&mut log, number, 100).unwrap())
        .collect();
    let mut expected = log.stored();
    expected -= places[2].counts;
    drop(log);
    disk.edit(&records_name(places[2].segment), |bytes| {
        let last = bytes.len() - 1;
        bytes[last] ^= 1;
    });
    let (mut log, recovered) = Log::open(Arc::new(disk.clone()), limits).unwrap();
    assert_eq!(recovered.stored, expected);
    assert_eq!(recovered.torn_bytes, (RECORD_HEADER + 8 + 100) as u64);
    assert_eq!((log.stored(), log.bytes()), (expected, disk.bytes()));
    append(&mut log, 4, 10).unwrap();
    assert_eq!(numbers_of(&mut log), [1, 2, 4]);
}

#[test]
fn a_settled_segment_is_removed_while_it_is_written_if_it_is_large() {
    for (len, files) in [(100, 2), (400, 0)] {
        let disk = SimulatedDisk::new(1);
        let mut log = opened(&disk, limits(1 << 20, 1200));
        let place = append(&mut log, 0, len).unwrap();
        assert!(!log.reclaim_active(), "it is not read");
        assert_eq!(numbers_of(&mut log), [0]);
        log.settle(&[place]);
        assert_eq!(disk.files(), files, "{len}");
        assert_eq!(log.bytes(), disk.bytes());
        assert_eq!(log.reclaim_active(), files > 0);
        assert_eq!((disk.files(), log.bytes()), (0, 0));
    }
}

#[test]
fn there_is_nothing_to_sync_until_something_changes() {
    let mut log = opened(&SimulatedDisk::new(1), limits(1 << 20, 10_000));
    assert!(log.unsynced().is_empty());
    let place = append(&mut log, 0, 100).unwrap();
    assert!(!log.unsynced().is_empty());
    assert!(log.unsynced().is_empty());
    let second = append(&mut log, 1, 100).unwrap();
    let unsynced = log.unsynced();
    assert!(!unsynced.is_empty());
    unsynced.sync().unwrap();
    numbers_of(&mut log);
    log.settle(&[place, second]);
    assert!(log.reclaim_active());
    assert!(!log.unsynced().is_empty(), "names are gone");
    assert!(log.unsynced().is_empty());
}

#[test]
fn the_record_after_a_damaged_one_is_found_wherever_it_begins() {
    let around = |middle: usize| middle - 6..middle + 6;
    for distance in around(100).chain(around(CHUNK)).chain(around(3 * CHUNK)) {
        let disk = SimulatedDisk::new(1);
        let limits = limits(1 << 24, 1 << 24);
        let mut log = opened(&disk, limits);
        // The search begins one byte after the damaged record.
        let len = distance + 1 - RECORD_HEADER - 8;
        let place = append(&mut log, 0, len).unwrap();
        for number in [1, 2] {
            append(&mut log, number, 10).unwrap();
        }
        drop(log);
        disk.edit(&records_name(place.segment), |bytes| {
            bytes[SEGMENT_HEADER] ^= 1;
        });
        let mut log = opened(&disk, limits);
        assert_eq!(numbers_of(&mut log), [1, 2], "{distance}");
    }
}
