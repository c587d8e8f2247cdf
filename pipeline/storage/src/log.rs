//! An append-only log of records, each read once, in order, and settled in any order.
//!
//! ```text
//! append ──► [ segment 7 ][ segment 8 ][ segment 9, active ]
//!               ▲ reader                      ▲ readable: committed up to here
//!               └ removed when all of its records are settled
//! ```
//!
//! Memory grows only with the number of segments. Nothing here starts threads or waits: the caller decides when to sync
//! ([`Log::unsynced`]) and when to make records readable ([`Log::publish`]).

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::sync::Arc;

use rustix::io::Errno;

use crate::bodies::{Bodies, Body, NoBodies};
use crate::browser::Browser;
use crate::disk::{Disk, DiskFile};
use crate::format::{
    BadSegment, Counts, RECORD_HEADER, RecordHeader, Reference, SEGMENT_HEADER, SETTLED_ENTRY,
    SegmentHeader, VERSION, WITHOUT_REFERENCES,
};
use crate::recover::{OpenError, recover_segments};
use crate::segment::{
    Limits, MAX_RECORDS, Segment, SettledSet, numbers, records_name, settled_name,
};
use crate::shared::{FOLDER, SharedBodies, Sharing};
use crate::walk::{Step, Walk, read_payload};

pub struct Log {
    disk: Arc<dyn Disk>,
    limits: Limits,
    segments: BTreeMap<u64, Segment>,
    /// The segment being written.
    active: Option<u64>,
    next_number: u64,
    reader: Reader,
    /// Where the bodies are that it shares with other logs.
    sharing: Option<Sharing>,
    /// Bytes of bodies that another log had stored.
    reused_bytes: u64,
    /// Size on disk, each record with its body.
    bytes: u64,
    /// Unsettled records.
    stored: Counts,
    /// Written but not published.
    pending: Vec<RecordPosition>,
    /// Segments with unsynced records.
    dirty: BTreeSet<u64>,
    /// Segments of shared bodies to sync before, each up to a position.
    dirty_bodies: BTreeMap<u64, u64>,
    /// Whether files were created or removed since the last directory sync.
    is_directory_dirty: bool,
}

/// The location of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordPosition {
    pub segment: u64,
    pub index: u32,
    pub counts: Counts,
    at: u64,
    end: u64,
    /// How much shorter it is than with its body.
    saved: u64,
}

/// The reader's next item.
#[derive(Debug)]
pub enum Next {
    Record {
        place: RecordPosition,
        head: Vec<u8>,
        body: Vec<u8>,
    },
    Corrupt(Corrupt),
}

/// Corrupt bytes; never delivered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Corrupt {
    pub segment: u64,
    /// Offset in the file.
    pub at: u64,
    /// Counts of the lost records, as far as known.
    pub counts: Counts,
    pub damage: Damage,
}

/// What is wrong with corrupt bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Damage {
    #[error("the checksum differs")]
    Checksum,
    /// The cause is in the log.
    #[error("it cannot be read")]
    Unreadable,
    #[error("its content, which is in `{FOLDER}`, is missing")]
    MissingBody,
}

/// The state found when opening a log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Recovered {
    pub segments: u64,
    pub stored: Counts,
    /// Bytes of a record interrupted by the end of the last run.
    pub torn_bytes: u64,
    /// Records whose shared bodies are missing; each is reported once.
    pub missing: Counts,
    /// Unreadable segments.
    pub unreadable_segments: u64,
}

/// Why a record was not stored.
#[derive(Debug, thiserror::Error)]
pub enum AppendError {
    /// There is room again once records are settled or dropped.
    #[error("the storage is full: {0}")]
    Full(FullCause),
    #[error("the batch needs {needed} bytes, but `max_bytes` is {max_bytes}")]
    TooLarge { needed: u64, max_bytes: u64 },
    #[error("failed to write to the storage: {0}")]
    Io(#[from] io::Error),
}

/// Why the storage is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FullCause {
    #[error("`max_bytes` is reached")]
    MaxBytes,
    #[error("no space left on the disk")]
    Disk,
}

/// Unsynced files, separate from the log so that syncing does not block other callers.
pub struct Unsynced {
    /// Synced first: a record is durable only with its body.
    bodies: Option<(Arc<SharedBodies>, BTreeMap<u64, u64>)>,
    disk: Arc<dyn Disk>,
    files: Vec<Arc<dyn DiskFile>>,
    is_directory_dirty: bool,
}

struct Reader {
    segment: u64,
    walk: Walk,
    /// Records of the segment settled by an earlier run.
    settled: SettledSet,
}

enum ScannedRecord {
    Record(RecordPosition, RecordHeader),
    Corrupt(Corrupt),
}

// === impl Log ===

impl Log {
    /// Opens the log and recovers the records of earlier runs.
    pub fn open(disk: Arc<dyn Disk>, limits: Limits) -> Result<(Self, Recovered), OpenError> {
        Self::open_sharing(disk, limits, None)
    }

    pub(crate) fn open_sharing(
        disk: Arc<dyn Disk>,
        limits: Limits,
        sharing: Option<Sharing>,
    ) -> Result<(Self, Recovered), OpenError> {
        let names = disk.names().map_err(OpenError::Folder)?;
        let (found, orphans) = numbers(&names);
        for number in orphans {
            // Its records file is gone.
            let _ = disk.remove(&settled_name(number));
        }
        let mut recovered = Recovered::default();
        let mut log = Self {
            limits,
            segments: BTreeMap::new(),
            active: None,
            next_number: found.last().map_or(1, |last| last.saturating_add(1)),
            reader: Reader {
                segment: 0,
                walk: Walk::new(0),
                settled: SettledSet::default(),
            },
            sharing,
            reused_bytes: 0,
            bytes: 0,
            stored: Counts::default(),
            pending: Vec::new(),
            dirty: BTreeSet::new(),
            dirty_bodies: BTreeMap::new(),
            is_directory_dirty: false,
            disk,
        };
        for (number, segment) in
            recover_segments(&*log.disk, &found, true, bodies_of(log.sharing.as_ref()))
        {
            let segment = segment.map_err(|error| OpenError::Segment {
                segment: number,
                error,
            })?;
            let (segment, scan) = match segment {
                Ok(found) => found,
                Err(BadSegment::Version(version)) => {
                    return Err(OpenError::Version {
                        segment: number,
                        version,
                    });
                }
                Err(BadSegment::Damaged) => {
                    recovered.unreadable_segments += u64::from(log.discard(number));
                    continue;
                }
            };
            recovered.torn_bytes += scan.torn_bytes;
            recovered.missing += scan.missing;
            recovered.segments += 1;
            log.stored += segment.unread;
            log.bytes += segment.bytes();
            // A killed run may have left it only in the page cache.
            log.dirty.insert(number);
            log.segments.insert(number, segment);
        }
        log.is_directory_dirty = !log.segments.is_empty();
        let held = log.sharing.as_ref().map(Sharing::held).unwrap_or_default();
        let whole = held.into_iter().map(|segment| (segment, u64::MAX));
        log.dirty_bodies = whole.collect();
        recovered.stored = log.stored;
        log.reclaim();
        Ok((log, recovered))
    }

    /// Removes a segment with a damaged header, whose records cannot be verified. Returns false if it had none.
    fn discard(&self, number: u64) -> bool {
        let name = records_name(number);
        let size = self.disk.open(&name).and_then(|file| file.size());
        for name in [name, settled_name(number)] {
            if let Err(error) = self.disk.remove(&name)
                && error.kind() != io::ErrorKind::NotFound
            {
                tracing::warn!(file = %name, %error, "Failed to remove an unreadable segment.");
            }
        }
        if let Some(sharing) = &self.sharing {
            sharing.release(number);
        }
        size.is_ok_and(|size| size > SEGMENT_HEADER as u64)
    }

    /// Size on disk, if no other log had its bodies.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Whether records refer to bodies that other logs may need, too.
    pub fn holds_shared_bodies(&self) -> bool {
        self.segments.values().any(|segment| segment.holds_bodies)
    }

    /// Records neither settled nor known to be lost.
    pub fn stored(&self) -> Counts {
        self.stored
    }

    /// The reader's position as segment and index: records before it are read or lost.
    pub fn position(&self) -> (u64, u32) {
        (self.reader.segment, self.reader.walk.next_index())
    }

    /// Bytes of bodies that another log had stored, since the last call.
    pub fn take_reused_bytes(&mut self) -> u64 {
        std::mem::take(&mut self.reused_bytes)
    }

    /// Writes a record. It is not readable before [`publish`](Self::publish). Other logs of the storage may have its body.
    pub fn append(
        &mut self,
        counts: Counts,
        head: &[u8],
        body: &[u8],
    ) -> Result<RecordPosition, AppendError> {
        let shares = self.sharing.as_ref().is_some_and(|it| it.wants(body));
        self.append_record(counts, head, body, shares)
    }

    /// Writes a record with a body of its own.
    pub fn append_copy(
        &mut self,
        counts: Counts,
        head: &[u8],
        body: &[u8],
    ) -> Result<RecordPosition, AppendError> {
        self.append_record(counts, head, body, false)
    }

    fn append_record(
        &mut self,
        counts: Counts,
        head: &[u8],
        body: &[u8],
        shares: bool,
    ) -> Result<RecordPosition, AppendError> {
        let record = RECORD_HEADER as u64 + head.len() as u64 + body.len() as u64;
        let needed = record + SETTLED_ENTRY as u64;
        let too_large = AppendError::TooLarge {
            needed,
            max_bytes: self.limits.max_bytes,
        };
        if needed + 2 * SEGMENT_HEADER as u64 > self.limits.max_bytes {
            return Err(too_large);
        }
        if !self.has_room(record, shares) {
            self.reclaim_active();
        }
        if !self.has_room(record, shares) {
            return Err(AppendError::Full(FullCause::MaxBytes));
        }
        let written = self.write(counts, head, body, shares);
        let place = match written {
            Err(error) if is_disk_full(&error) && self.reclaim_active() => {
                self.write(counts, head, body, shares)
            }
            written => written,
        };
        match place {
            Ok(Some(place)) => Ok(place),
            Ok(None) => Err(too_large),
            Err(error) if is_disk_full(&error) => Err(AppendError::Full(FullCause::Disk)),
            Err(error) => Err(AppendError::Io(error)),
        }
    }

    /// Whether a record of this size fits the limit, including its settled entry.
    fn has_room(&self, record: u64, shares: bool) -> bool {
        let segment = match self.active_for(record, shares) {
            Some(_) => 0,
            None => 2 * SEGMENT_HEADER as u64,
        };
        // Includes the pending entries of earlier records.
        let entries = (self.stored.batches + 1).saturating_mul(SETTLED_ENTRY as u64);
        self.bytes + segment + record + entries <= self.limits.max_bytes
    }

    /// The active segment, if the record fits it.
    fn active_for(&self, record: u64, shares: bool) -> Option<u64> {
        let number = self.active?;
        let segment = self.segments.get(&number)?;
        let is_empty = segment.len == SEGMENT_HEADER as u64;
        let fits = segment.whole_len() + record <= self.limits.segment_bytes || is_empty;
        let is_suitable = !shares || segment.may_have_references();
        (fits && is_suitable && segment.next_index < MAX_RECORDS).then_some(number)
    }

    fn write(
        &mut self,
        counts: Counts,
        head: &[u8],
        body: &[u8],
        shares: bool,
    ) -> io::Result<Option<RecordPosition>> {
        let record = RECORD_HEADER as u64 + head.len() as u64 + body.len() as u64;
        let number = match self.active_for(record, shares) {
            Some(number) => number,
            None => self.begin_segment(shares)?,
        };
        let sharing = self.sharing.as_ref().filter(|_| shares);
        let shared = sharing.and_then(|sharing| sharing.store(number, body));
        let Some(segment) = self.segments.get_mut(&number) else {
            return Ok(None);
        };
        let (salt, index) = (segment.header.salt, segment.next_index);
        let counts = Counts {
            batches: 1,
            ..counts
        };
        let reference = shared.map(|(reference, _)| reference.encode());
        let (header, stored) = match &reference {
            None => (RecordHeader::new(salt, index, counts, head, body), body),
            Some(reference) => (
                RecordHeader::referring(salt, index, counts, head, reference, body.len()),
                &reference[..],
            ),
        };
        let Some(header) = header else {
            return Ok(None);
        };
        segment.holds_bodies |= shared.is_some();
        let file = segment.open_records(&*self.disk)?;
        if let Err(error) = file.append(&[&header.encode(salt), head, stored]) {
            // If that fails too, the partial record stays as the segment's torn end.
            if file.truncate(segment.len).is_err() {
                self.seal();
            }
            return Err(error);
        }
        let place = RecordPosition {
            segment: number,
            index,
            counts,
            at: segment.len,
            end: segment.len + header.record_len(),
            saved: header.saved(),
        };
        segment.len = place.end;
        segment.saved += place.saved;
        segment.next_index += 1;
        self.bytes += record;
        self.stored += counts;
        self.pending.push(place);
        self.dirty.insert(number);
        if let Some((reference, was_there)) = shared {
            let end = reference.at + RECORD_HEADER as u64 + body.len() as u64;
            let dirty = self.dirty_bodies.entry(reference.segment).or_default();
            *dirty = end.max(*dirty);
            self.reused_bytes += if was_there { body.len() as u64 } else { 0 };
        }
        Ok(Some(place))
    }

    fn begin_segment(&mut self, shares: bool) -> io::Result<u64> {
        self.seal();
        let number = self.next_number;
        let header = SegmentHeader {
            version: match shares {
                true => VERSION,
                false => WITHOUT_REFERENCES,
            },
            number,
            salt: RandomState::new().hash_one(number),
        };
        // Even after a failure: a partial file may exist.
        self.next_number += 1;
        let segment = Segment::create(&*self.disk, header)?;
        self.bytes += segment.bytes();
        self.segments.insert(number, segment);
        self.active = Some(number);
        self.is_directory_dirty = true;
        Ok(number)
    }

    /// Stops writing to the active segment.
    pub fn seal(&mut self) {
        self.active = None;
    }

    /// Makes written records readable.
    pub fn publish(&mut self) {
        for place in self.pending.drain(..) {
            if let Some(segment) = self.segments.get_mut(&place.segment) {
                segment.readable = place.end;
                segment.readable_index = place.index + 1;
                segment.unread += place.counts;
            }
        }
    }

    /// Withdraws unpublished records that could not be synced.
    pub fn withdraw(&mut self) {
        self.reused_bytes = 0;
        let pending = std::mem::take(&mut self.pending);
        for place in pending.into_iter().rev() {
            self.stored -= place.counts;
            let Some(segment) = self.segments.get_mut(&place.segment) else {
                continue;
            };
            self.bytes -= segment.len - place.at + place.saved;
            segment.saved -= place.saved;
            segment.len = place.at;
            // If that fails too, the next run may deliver the record although it was refused.
            let _ = segment
                .open_records(&*self.disk)
                .and_then(|file| file.truncate(place.at));
        }
        self.seal();
        self.reclaim();
    }

    /// The files written since the last call.
    pub fn unsynced(&mut self) -> Unsynced {
        let mut files = Vec::new();
        for number in std::mem::take(&mut self.dirty) {
            // Removed segments need no sync.
            if let Some(segment) = self.segments.get_mut(&number)
                && let Ok(file) = segment.open_records(&*self.disk)
            {
                files.push(file);
            }
        }
        let bodies = std::mem::take(&mut self.dirty_bodies);
        let sharing = self.sharing.as_ref().filter(|_| !bodies.is_empty());
        Unsynced {
            bodies: sharing.map(|sharing| (Arc::clone(sharing.bodies()), bodies)),
            disk: Arc::clone(&self.disk),
            files,
            is_directory_dirty: std::mem::take(&mut self.is_directory_dirty),
        }
    }

    /// Reads the next record from its file. It stays in the log until [settled](Self::settle).
    pub fn read(&mut self) -> Option<Next> {
        let (place, header) = match self.find()? {
            ScannedRecord::Record(place, header) => (place, header),
            ScannedRecord::Corrupt(corrupt) => return Some(Next::Corrupt(corrupt)),
        };
        let bodies = bodies_of(self.sharing.as_ref());
        let payload = self.segments.get_mut(&place.segment).map(|segment| {
            let file = segment.open_records(&*self.disk)?;
            read_whole(&*file, segment.header.salt, place.at, &header, bodies)
        });
        let damage = match read_or_damage(&place, payload) {
            Ok((head, body)) => return Some(Next::Record { place, head, body }),
            Err(damage) => damage,
        };
        self.settle(&[place]);
        Some(Next::Corrupt(Corrupt::of(&place, damage)))
    }

    /// Reads a record again that was read or taken and is not settled. It stays in the log.
    pub fn read_again(&mut self, place: &RecordPosition) -> Next {
        let reading = self.reader.segment;
        let bodies = bodies_of(self.sharing.as_ref());
        let payload = self.segments.get_mut(&place.segment).map(|segment| {
            let file = segment.open_records(&*self.disk)?;
            let mut header = [0; RECORD_HEADER];
            file.read_at(place.at, &mut header)?;
            let salt = segment.header.salt;
            let payload = match RecordHeader::decode(&header, salt) {
                Some(header) if place.at + header.record_len() == place.end => {
                    read_whole(&*file, salt, place.at, &header, bodies)?
                }
                _ => Err(Damage::Checksum),
            };
            if place.segment < reading {
                segment.close();
            }
            Ok::<_, io::Error>(payload)
        });
        match read_or_damage(place, payload) {
            Ok((head, body)) => Next::Record {
                place: *place,
                head,
                body,
            },
            Err(damage) => Next::Corrupt(Corrupt::of(place, damage)),
        }
    }

    /// Skips the next record if it is this one, which the caller has in memory.
    pub fn take(&mut self, place: &RecordPosition) -> bool {
        if self.reader.segment != place.segment {
            let Some(at) = self.reading() else {
                return false;
            };
            if at != place.segment {
                return false;
            }
        }
        let Some(segment) = self.segments.get_mut(&place.segment) else {
            return false;
        };
        if self.reader.walk.at() != place.at || place.end > segment.readable {
            return false;
        }
        self.reader.walk.pass(place.index, place.end);
        segment.unread -= place.counts;
        segment.in_flight += 1;
        true
    }

    /// The numbers of the segments, oldest first.
    pub fn segments(&self) -> impl Iterator<Item = u64> {
        self.segments.keys().copied()
    }

    /// Reads a segment's published records without taking them; `None` if it is gone.
    pub fn browse(&mut self, segment: u64) -> io::Result<Option<Browser>> {
        let Some(segment) = self.segments.get_mut(&segment) else {
            return Ok(None);
        };
        let file = segment.open_records(&*self.disk)?;
        Ok(Some(Browser::new(
            file,
            segment.header.salt,
            segment.readable,
        )))
    }

    /// Removes the oldest segment with its published records; no reader may use them any more. `None` if the only
    /// segment is the one being written.
    pub fn remove_oldest(&mut self) -> io::Result<Option<u64>> {
        let Some((&number, segment)) = self.segments.iter_mut().next() else {
            return Ok(None);
        };
        if self.active == Some(number) {
            return Ok(None);
        }
        segment.remove(&*self.disk)?;
        self.stored -= segment.unread;
        self.bytes -= segment.bytes();
        self.is_directory_dirty = true;
        self.dirty.remove(&number);
        self.segments.remove(&number);
        Ok(Some(number))
    }

    /// Drops the oldest unread record; `None` if there is none.
    pub fn drop_oldest(&mut self) -> Option<Result<RecordPosition, Corrupt>> {
        match self.find()? {
            ScannedRecord::Record(place, _) => {
                self.settle(&[place]);
                Some(Ok(place))
            }
            ScannedRecord::Corrupt(corrupt) => Some(Err(corrupt)),
        }
    }

    /// Marks records as settled.
    pub fn settle(&mut self, places: &[RecordPosition]) {
        let mut by_segment: BTreeMap<u64, Vec<u32>> = BTreeMap::new();
        for place in places {
            self.stored -= place.counts;
            let indexes = by_segment.entry(place.segment).or_default();
            indexes.push(place.index);
        }
        for (number, indexes) in by_segment {
            let is_active = self.active == Some(number);
            let Some(segment) = self.segments.get_mut(&number) else {
                continue;
            };
            segment.in_flight = segment.in_flight.saturating_sub(indexes.len() as u32);
            if segment.is_consumed() && !is_active {
                continue;
            }
            let before = segment.bytes();
            if let Err(error) = segment.settle(&*self.disk, &indexes) {
                tracing::warn!(
                    segment = number, batches = indexes.len(), %error,
                    "Failed to record settled batches; they are delivered again if profcol is killed."
                );
            }
            self.bytes += segment.bytes() - before;
        }
        self.reclaim();
    }

    /// The segment to read next; leaves segments that are fully read.
    fn reading(&mut self) -> Option<u64> {
        loop {
            let number = self.reader.segment;
            if let Some(segment) = self.segments.get(&number) {
                let is_read = self.reader.walk.at() >= segment.readable;
                let ended =
                    is_read && self.active != Some(number) && segment.readable == segment.len;
                if !ended || segment.unread.batches > 0 {
                    return Some(number);
                }
            }
            let (&next, segment) = self.segments.range_mut(number + 1..).next()?;
            let settled = segment
                .open_settled(&*self.disk)
                .and_then(|_| segment.read_settled())
                .inspect_err(|error| {
                    tracing::error!(segment = next, %error, "Failed to read which batches are settled; they are delivered again.");
                });
            self.reader = Reader::at(&segment.header, settled.unwrap_or_default());
            if let Some(left) = self.segments.get_mut(&number) {
                left.close();
            }
        }
    }

    fn find(&mut self) -> Option<ScannedRecord> {
        loop {
            let number = self.reading()?;
            let segment = self.segments.get_mut(&number)?;
            let at = self.reader.walk.at();
            let file = segment.open_records(&*self.disk);
            let step = file.and_then(|file| self.reader.walk.step(&*file, segment.readable));
            let (lost, damage) = match step {
                Ok(Step::Record { header, .. }) if self.reader.settled.contains(header.index) => {
                    continue;
                }
                Ok(Step::Record { at, header }) => {
                    segment.unread -= header.counts;
                    segment.in_flight += 1;
                    let place = RecordPosition {
                        segment: number,
                        index: header.index,
                        counts: header.counts,
                        at,
                        end: at + header.record_len(),
                        saved: header.saved(),
                    };
                    return Some(ScannedRecord::Record(place, header));
                }
                Ok(Step::End) if segment.unread.batches == 0 => return None,
                Ok(Step::Damage { .. }) => (Counts::default(), Damage::Checksum),
                step => {
                    let damage = match step {
                        Ok(_) => Damage::Checksum,
                        Err(error) => unreadable(number, at, &error),
                    };
                    self.reader
                        .walk
                        .skip_to(segment.readable_index, segment.readable);
                    // Records missing before the end.
                    (std::mem::take(&mut segment.unread), damage)
                }
            };
            self.stored -= lost;
            let corrupt = Corrupt {
                segment: number,
                at,
                counts: lost,
                damage,
            };
            self.reclaim();
            return Some(ScannedRecord::Corrupt(corrupt));
        }
    }

    /// Ends the active segment if all its records are settled, to free its space.
    pub fn reclaim_active(&mut self) -> bool {
        let before = self.bytes;
        if self.active_is_consumed() {
            self.seal();
        }
        self.reclaim();
        let freed = self.sharing.as_ref().is_some_and(Sharing::reclaim_active);
        self.bytes < before || freed
    }

    fn active_is_consumed(&self) -> bool {
        let active = self.active.and_then(|number| self.segments.get(&number));
        active.is_some_and(Segment::is_consumed)
    }

    /// Removes fully settled segments.
    fn reclaim(&mut self) {
        let active = self.active.and_then(|number| self.segments.get(&number));
        if active.is_some_and(|segment| {
            segment.is_consumed() && segment.whole_len() > self.limits.segment_bytes / 4
        }) {
            self.seal();
        }
        let consumed: Vec<u64> = self
            .segments
            .iter()
            .filter(|(number, segment)| self.active != Some(**number) && segment.is_consumed())
            .map(|(number, _)| *number)
            .collect();
        for number in consumed {
            let Some(segment) = self.segments.get_mut(&number) else {
                continue;
            };
            self.is_directory_dirty = true;
            self.dirty.remove(&number);
            // It still counts, and removal is retried with the next one.
            if let Err(error) = segment.remove(&*self.disk) {
                if !std::mem::replace(&mut segment.removal_failed, true) {
                    tracing::warn!(segment = number, %error, "Failed to remove a settled segment; it is delivered again if profcol is killed.");
                }
                continue;
            }
            self.bytes -= segment.bytes();
            self.release(number);
            self.segments.remove(&number);
        }
        if let Some(number) = self.active.filter(|_| self.active_is_consumed()) {
            self.release(number);
        }
    }

    /// Other logs may still need the bodies of this segment's records; this one does not.
    fn release(&mut self, number: u64) {
        if let Some(segment) = self.segments.get_mut(&number)
            && std::mem::take(&mut segment.holds_bodies)
            && let Some(sharing) = &self.sharing
        {
            sharing.release(number);
        }
    }
}

/// Where a log looks for bodies that are not in its records.
fn bodies_of(sharing: Option<&Sharing>) -> &dyn Bodies {
    match sharing {
        Some(sharing) => &**sharing.bodies(),
        None => &NoBodies,
    }
}

type Payload = Result<(Vec<u8>, Vec<u8>), Damage>;

/// A record's head and body. `None` is read of a segment that is gone.
fn read_or_damage(place: &RecordPosition, payload: Option<io::Result<Payload>>) -> Payload {
    match payload {
        Some(Ok(payload)) => payload,
        Some(Err(error)) => Err(unreadable(place.segment, place.at, &error)),
        None => Err(Damage::Unreadable),
    }
}

fn unreadable(segment: u64, at: u64, error: &io::Error) -> Damage {
    tracing::error!(segment, at, %error, "Failed to read from the storage.");
    Damage::Unreadable
}

/// Reads a record's head and body, wherever that is.
pub fn read_whole(
    file: &dyn DiskFile,
    salt: u64,
    at: u64,
    header: &RecordHeader,
    bodies: &dyn Bodies,
) -> io::Result<Payload> {
    let Some((head, stored)) = read_payload(file, salt, at, header)? else {
        return Ok(Err(Damage::Checksum));
    };
    if !header.has_reference {
        return Ok(Ok((head, stored)));
    }
    let Some(reference) = Reference::decode(&stored) else {
        return Ok(Err(Damage::Checksum));
    };
    Ok(match bodies.read(&reference, header.body_len)? {
        Body::Intact(body) => Ok((head, body)),
        Body::Missing => Err(Damage::MissingBody),
        Body::Damaged => Err(Damage::Checksum),
    })
}

// === impl RecordPosition ===

impl RecordPosition {
    /// Size of the record with its body.
    pub fn bytes(&self) -> u64 {
        self.end - self.at + self.saved
    }
}

// === impl Corrupt ===

impl Corrupt {
    /// A record that cannot be read or decoded.
    pub fn of(place: &RecordPosition, damage: Damage) -> Self {
        Self {
            segment: place.segment,
            at: place.at,
            counts: place.counts,
            damage,
        }
    }
}

// === impl Unsynced ===

impl Unsynced {
    /// Whether records refer to bodies that other logs share.
    pub fn has_bodies(&self) -> bool {
        self.bodies.is_some()
    }

    pub fn is_empty(&self) -> bool {
        self.bodies.is_none() && self.files.is_empty() && !self.is_directory_dirty
    }

    /// Syncs what it can: records with their own bodies need no others.
    pub fn sync(&self) -> io::Result<()> {
        let bodies = self.sync_bodies();
        self.sync_files().and(bodies)
    }

    /// For records that are withdrawn if that fails: without their bodies they must not become durable.
    pub fn sync_or_stop(&self) -> io::Result<()> {
        self.sync_bodies()?;
        self.sync_files()
    }

    fn sync_bodies(&self) -> io::Result<()> {
        match &self.bodies {
            Some((bodies, ends)) => bodies.sync(ends),
            None => Ok(()),
        }
    }

    fn sync_files(&self) -> io::Result<()> {
        for file in &self.files {
            file.sync()?;
        }
        match self.is_directory_dirty {
            true => self.disk.sync(),
            false => Ok(()),
        }
    }
}

// === impl Reader ===

impl Reader {
    fn at(header: &SegmentHeader, settled: SettledSet) -> Self {
        Self {
            segment: header.number,
            walk: Walk::new(header.salt),
            settled,
        }
    }
}

fn is_disk_full(error: &io::Error) -> bool {
    let code = error.raw_os_error();
    [Errno::NOSPC, Errno::DQUOT]
        .iter()
        .any(|full| code == Some(full.raw_os_error()))
}
