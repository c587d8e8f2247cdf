//! The two files of a segment: records and settled entries.

use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;

use crate::ahead::ReadAhead;
use crate::bodies::{Bodies, Body};
use crate::disk::{Disk, DiskFile};
use crate::format::{
    BadSegment, Counts, RecordHeader, Reference, SEGMENT_HEADER, SETTLED_ENTRY, SegmentHeader,
    VERSION, read_settled_entry, settled_entry,
};
use crate::walk::{Step, Walk, read_payload};

/// Maximum records per segment, so that its settled set fits into 8 KiB.
pub const MAX_RECORDS: u32 = 1 << 16;

/// Size limits of a log.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Size on disk of all files, each record with its body.
    pub max_bytes: u64,
    /// Size at which a new segment starts.
    pub segment_bytes: u64,
}

const RECORDS: &str = "segment";
const SETTLED: &str = "settled";

pub struct Segment {
    pub header: SegmentHeader,
    /// Valid length of the records file.
    pub len: u64,
    /// End of the readable records.
    pub readable: u64,
    /// Index of the record at `readable`.
    pub readable_index: u32,
    pub next_index: u32,
    /// Records neither read nor settled.
    pub unread: Counts,
    /// Records read but not settled.
    pub in_flight: u32,
    /// How much shorter its records are than with their bodies.
    pub saved: u64,
    /// Whether it may hold shared bodies.
    pub holds_bodies: bool,
    settled_len: u64,
    /// Records of an earlier run whose shared bodies are missing count as settled.
    missing: SettledSet,
    /// Opened on first use.
    records: Option<Arc<dyn DiskFile>>,
    settled: Option<Arc<dyn DiskFile>>,
    /// No more entries are written: its end is unknown.
    settled_is_broken: bool,
    /// Removal failed.
    pub removal_failed: bool,
}

/// Result of scanning a segment of an earlier run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SegmentScan {
    pub stored: Counts,
    pub settled: u64,
    /// Damaged places, each with at least one record.
    pub damaged: u64,
    pub damaged_bytes: u64,
    /// Bytes of an incomplete record at the end.
    pub torn_bytes: u64,
    /// Records that are not settled and whose shared bodies are missing.
    pub missing: Counts,
    /// The segments with the shared bodies of records that are not settled.
    pub references: BTreeSet<u64>,
}

/// The set of settled records.
#[derive(Clone, Debug, Default)]
pub struct SettledSet(Vec<u64>);

pub fn records_name(number: u64) -> String {
    format!("{number:020}.{RECORDS}")
}

pub fn settled_name(number: u64) -> String {
    format!("{number:020}.{SETTLED}")
}

/// The numbers of segments with a records file, and of those with only a settled file.
pub fn numbers(names: &[String]) -> (Vec<u64>, Vec<u64>) {
    let of = |ending: &str| {
        let numbers = names.iter().filter_map(|name| {
            let (number, found) = name.split_once('.')?;
            (found == ending && number.len() == 20).then(|| number.parse().ok())?
        });
        let mut numbers: Vec<u64> = numbers.collect();
        numbers.sort_unstable();
        numbers
    };
    let (records, mut orphans) = (of(RECORDS), of(SETTLED));
    orphans.retain(|number| records.binary_search(number).is_err());
    (records, orphans)
}

// === impl Segment ===

impl Segment {
    /// Creates an empty segment.
    pub fn create(disk: &dyn Disk, header: SegmentHeader) -> io::Result<Self> {
        let number = header.number;
        let bytes = header.encode();
        let write = |name: &str| -> io::Result<Arc<dyn DiskFile>> {
            let file = disk.create(name)?;
            file.append(&[&bytes])?;
            Ok(file)
        };
        let made = write(&settled_name(number))
            .and_then(|settled| Ok((settled, write(&records_name(number))?)));
        let (settled, records) = made.inspect_err(|_| {
            // Leftovers are removed by the next run at the latest.
            let _ = disk.remove(&records_name(number));
            let _ = disk.remove(&settled_name(number));
        })?;
        let mut segment = Self::of(header);
        segment.records = Some(records);
        segment.settled = Some(settled);
        Ok(segment)
    }

    fn of(header: SegmentHeader) -> Self {
        let empty = SEGMENT_HEADER as u64;
        Self {
            header,
            len: empty,
            readable: empty,
            readable_index: 0,
            next_index: 0,
            unread: Counts::default(),
            in_flight: 0,
            saved: 0,
            holds_bodies: false,
            settled_len: empty,
            missing: SettledSet::default(),
            records: None,
            settled: None,
            settled_is_broken: false,
            removal_failed: false,
        }
    }

    /// Recovers a segment of an earlier run. `is_last`: writing may have been interrupted within a record; bytes after
    /// the last complete record are truncated, unless `may_write` is false.
    pub fn recover(
        disk: &dyn Disk,
        number: u64,
        is_last: bool,
        may_write: bool,
        bodies: &dyn Bodies,
    ) -> io::Result<Result<(Self, SegmentScan), BadSegment>> {
        let records = disk.open(&records_name(number))?;
        let settled = disk.open(&settled_name(number)).ok();
        let header = match read_header(&*records, number)? {
            Ok(header) => header,
            // The settled file has the same header.
            Err(bad) => match settled.as_ref().map(|file| read_header(&**file, number)) {
                Some(Ok(Ok(header))) => header,
                _ => return Ok(Err(bad)),
            },
        };
        let mut segment = Self::of(header);
        segment.len = records.size()?;
        segment.records = Some(records);
        match settled {
            Some(file) => {
                let size = file.size()?;
                let begins = size >= SEGMENT_HEADER as u64;
                let torn = size.saturating_sub(SEGMENT_HEADER as u64) % SETTLED_ENTRY as u64;
                if begins {
                    segment.settled_len = size - torn;
                }
                if may_write && !begins {
                    file.truncate(0)?;
                    file.append(&[&header.encode()])?;
                } else if may_write && torn > 0 {
                    segment.settled_is_broken = file.truncate(size - torn).is_err();
                }
                segment.settled = Some(file).filter(|_| begins || may_write);
            }
            None if may_write => {
                let file = disk.create(&settled_name(number))?;
                file.append(&[&header.encode()])?;
                segment.settled = Some(file);
            }
            None => {}
        }
        let (scan, missing) = segment.scan(is_last, may_write, bodies)?;
        if may_write && !missing.is_empty() {
            // If that fails, the next run counts them again.
            let _ = segment.settle(disk, &missing);
        }
        segment.readable = segment.len;
        segment.readable_index = segment.next_index;
        // Close it: hundreds may be waiting.
        segment.close();
        Ok(Ok((segment, scan)))
    }

    /// Also returns the records whose shared bodies are missing.
    fn scan(
        &mut self,
        is_last: bool,
        may_write: bool,
        bodies: &dyn Bodies,
    ) -> io::Result<(SegmentScan, Vec<u32>)> {
        let mut missing = Vec::new();
        let Some(file) = self.records.clone() else {
            return Ok((SegmentScan::default(), missing));
        };
        let ahead = ReadAhead::new(&*file, self.len);
        let reader: &dyn DiskFile = match self.may_have_references() {
            true => &ahead,
            false => &*file,
        };
        let settled = self.read_settled()?;
        let mut scan = SegmentScan::default();
        let mut walk = Walk::new(self.header.salt);
        // The end of the last intact record so far.
        let mut intact_end = walk.at();
        let mut suspects = Counts::default();
        let mut suspects_saved = 0;
        loop {
            match walk.step(reader, self.len)? {
                Step::Record { at, header } => {
                    self.next_index = header.index.saturating_add(1);
                    scan.stored += header.counts;
                    self.saved += header.saved();
                    let mut unread = header.counts;
                    let is_settled = settled.contains(header.index);
                    if is_settled {
                        scan.settled += 1;
                        unread = Counts::default();
                    }
                    // Shared bodies are verified when they are read: whatever happened to them, this record is no torn end.
                    let is_intact = match header.has_reference && !is_settled {
                        true => match referred(reader, self.header.salt, at, &header, bodies)? {
                            Referred::Body(segment) => {
                                scan.references.insert(segment);
                                true
                            }
                            Referred::Missing => {
                                scan.missing += header.counts;
                                scan.stored -= header.counts;
                                unread = Counts::default();
                                missing.push(header.index);
                                self.missing.insert(header.index);
                                true
                            }
                            Referred::DamagedRecord => !is_last,
                        },
                        false => {
                            !is_last
                                || read_payload(reader, self.header.salt, at, &header)?.is_some()
                        }
                    };
                    self.unread += unread;
                    match is_intact {
                        true => {
                            intact_end = walk.at();
                            suspects = Counts::default();
                            suspects_saved = 0;
                        }
                        false => {
                            suspects += unread;
                            suspects_saved += header.saved();
                        }
                    }
                }
                Step::Damage { bytes } => {
                    scan.damaged += 1;
                    scan.damaged_bytes += bytes;
                }
                // Counted below.
                Step::Tail { .. } if is_last => {}
                Step::Tail { bytes } => {
                    scan.damaged += 1;
                    scan.damaged_bytes += bytes;
                }
                Step::End => break,
            }
        }
        if is_last && intact_end < self.len {
            scan.torn_bytes += self.len - intact_end;
            self.saved -= suspects_saved;
            self.unread -= suspects;
            scan.stored -= suspects;
            self.len = intact_end;
            if may_write {
                file.truncate(intact_end)?;
            }
        }
        self.holds_bodies = !scan.references.is_empty();
        Ok((scan, missing))
    }

    /// The records settled by earlier runs, and those that count as settled.
    pub fn read_settled(&self) -> io::Result<SettledSet> {
        let mut set = self.missing.clone();
        let Some(file) = &self.settled else {
            return Ok(set);
        };
        let len = usize::try_from(self.settled_len - SEGMENT_HEADER as u64).unwrap_or(0);
        // No record is settled twice.
        let mut entries = vec![0; len.min(MAX_RECORDS as usize * SETTLED_ENTRY)];
        file.read_at(SEGMENT_HEADER as u64, &mut entries)?;
        for entry in entries.chunks_exact(SETTLED_ENTRY) {
            if let Some(index) = read_settled_entry(self.header.salt, entry) {
                set.insert(index);
            }
        }
        Ok(set)
    }

    /// Persists that these records are settled.
    pub fn settle(&mut self, disk: &dyn Disk, indexes: &[u32]) -> io::Result<()> {
        if self.settled_is_broken {
            return Ok(());
        }
        let entries: Vec<u8> = indexes
            .iter()
            .flat_map(|index| settled_entry(self.header.salt, *index))
            .collect();
        let file = self.open_settled(disk)?;
        if let Err(error) = file.append(&[&entries]) {
            self.settled_is_broken = file.truncate(self.settled_len).is_err();
            return Err(error);
        }
        self.settled_len += entries.len() as u64;
        Ok(())
    }

    pub fn open_records(&mut self, disk: &dyn Disk) -> io::Result<Arc<dyn DiskFile>> {
        if let Some(file) = &self.records {
            return Ok(Arc::clone(file));
        }
        let file = disk.open(&records_name(self.header.number))?;
        self.records = Some(Arc::clone(&file));
        Ok(file)
    }

    pub fn open_settled(&mut self, disk: &dyn Disk) -> io::Result<Arc<dyn DiskFile>> {
        if let Some(file) = &self.settled {
            return Ok(Arc::clone(file));
        }
        let file = disk.open(&settled_name(self.header.number))?;
        self.settled = Some(Arc::clone(&file));
        Ok(file)
    }

    /// Closes the files; they are reopened on demand.
    pub fn close(&mut self) {
        self.records = None;
        self.settled = None;
    }

    pub fn is_consumed(&self) -> bool {
        self.unread.batches == 0 && self.in_flight == 0 && self.readable == self.len
    }

    pub fn may_have_references(&self) -> bool {
        self.header.version >= VERSION
    }

    /// Size of the records, with their bodies.
    pub fn whole_len(&self) -> u64 {
        self.len + self.saved
    }

    /// On disk, if its records had their bodies.
    pub fn bytes(&self) -> u64 {
        self.whole_len() + self.settled_len
    }

    pub fn remove(&self, disk: &dyn Disk) -> io::Result<()> {
        remove_files(disk, self.header.number)
    }
}

/// Removes the files of a segment.
pub fn remove_files(disk: &dyn Disk, number: u64) -> io::Result<()> {
    // In this order, so that settled records cannot reappear.
    for name in [records_name(number), settled_name(number)] {
        match disk.remove(&name) {
            // Already removed, possibly by an earlier attempt.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            removed => removed?,
        }
    }
    Ok(())
}

/// What an unsettled record refers to.
enum Referred {
    /// A body in this segment, intact or not.
    Body(u64),
    /// A body that was removed, or never written.
    Missing,
    /// What it refers to is unknown.
    DamagedRecord,
}

fn referred(
    file: &dyn DiskFile,
    salt: u64,
    at: u64,
    header: &RecordHeader,
    bodies: &dyn Bodies,
) -> io::Result<Referred> {
    let payload = read_payload(file, salt, at, header)?;
    let Some(reference) = payload.and_then(|(_, reference)| Reference::decode(&reference)) else {
        return Ok(Referred::DamagedRecord);
    };
    Ok(match bodies.find(&reference, header.body_len) {
        Ok(Body::Missing) => Referred::Missing,
        // What cannot be read now may be readable when it is due.
        Ok(Body::Intact(_) | Body::Damaged) | Err(_) => Referred::Body(reference.segment),
    })
}

pub fn read_header(
    file: &dyn DiskFile,
    number: u64,
) -> io::Result<Result<SegmentHeader, BadSegment>> {
    if file.size()? < SEGMENT_HEADER as u64 {
        return Ok(Err(BadSegment::Damaged));
    }
    let mut bytes = [0; SEGMENT_HEADER];
    file.read_at(0, &mut bytes)?;
    Ok(SegmentHeader::decode(&bytes, number))
}

// === impl SettledSet ===

impl SettledSet {
    pub fn contains(&self, index: u32) -> bool {
        let word = self.0.get(index as usize / 64).copied().unwrap_or(0);
        word >> (index % 64) & 1 == 1
    }

    fn insert(&mut self, index: u32) {
        if index >= MAX_RECORDS {
            return;
        }
        let place = index as usize / 64;
        if self.0.len() <= place {
            self.0.resize(place + 1, 0);
        }
        if let Some(word) = self.0.get_mut(place) {
            *word |= 1 << (index % 64);
        }
    }
}
