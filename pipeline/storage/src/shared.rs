//! Bodies that several queues share: one more log in segments, so that a batch for several exporters is written once.
//!
//! ```text
//! exporter_a/ [ segment 3 ]──┐ holds      ┌──[ segment 8 ] exporter_b/
//!                            ▼            ▼
//! batches/          [ segment 1 ] [ segment 2, active ]
//! ```
//!
//! A segment of a queue holds the segments with the bodies of its records until all of these are settled. A segment that
//! none holds is removed. Whatever goes wrong here costs space, not batches: a queue then stores a copy of its own.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;
use twox_hash::XxHash3_128;

use crate::bodies::{Bodies, Body, NoBodies};
use crate::disk::Disk;
use crate::format::{
    BadSegment, Counts, RECORD_HEADER, RecordHeader, Reference, SEGMENT_HEADER, SegmentHeader,
    VERSION,
};
use crate::place::Place;
use crate::recover::{OpenError, recover_segments};
use crate::resolve::{lies_in, read_body};
use crate::segment::{
    Limits, MAX_RECORDS, Segment, numbers, records_name, remove_files, settled_name,
};

/// The directory of the bodies.
pub const FOLDER: &str = "batches";

/// Smaller bodies are copied: the second record's header and reference, and one more system call, would cost as much as they
/// save.
const MIN_BODY: usize = 1 << 10;

/// How many of the newest bodies are found again. Queues that store the same batches do so at about the same time: if none
/// of so many was found, the queues have nothing in common, and copies take fewer writes and syncs.
const RECENT: usize = 4096;

pub(crate) struct SharedBodies {
    place: Place,
    limits: Limits,
    /// Clients choose what is stored, and must not be able to choose two bodies with the same key.
    secret: Vec<u8>,
    state: Mutex<State>,
    /// Held during a sync: who finds nothing left to sync must not believe it is durable before that.
    syncing: Mutex<()>,
    /// Open queues.
    queues: AtomicUsize,
}

#[derive(Default)]
struct State {
    /// `None` until the directory exists.
    disk: Option<Arc<dyn Disk>>,
    segments: BTreeMap<u64, SharedSegment>,
    /// The segment being written.
    active: Option<u64>,
    next_number: u64,
    /// Size on disk.
    bytes: u64,
    /// By queue and its segment: the segments with the bodies of its records.
    held: BTreeMap<String, BTreeMap<u64, BTreeSet<u64>>>,
    recent: Recent,
    /// Bodies since one was found.
    not_found: usize,
    is_directory_dirty: bool,
    /// Earlier segments stay: a queue that cannot be read may need them.
    kept_below: u64,
    /// The last body could not be shared, which was logged.
    is_failing: bool,
}

struct SharedSegment {
    /// `None` if its headers are damaged.
    files: Option<Segment>,
    /// How much of it is durable. A killed run may have left all of it only in the page cache.
    durable_len: u64,
    /// Segments of queues that hold it.
    holders: usize,
    /// Its latest bodies may never become durable.
    failed_to_sync: bool,
    /// Its files may be gone, at least one of them.
    is_removed: bool,
}

/// The newest bodies.
#[derive(Default)]
struct Recent {
    /// `None` if the queue that asked has a copy.
    places: HashMap<Key, Option<Reference>>,
    /// Oldest first.
    order: VecDeque<Key>,
}

/// Hash and length of a body. Heads differ: a batch has another id for each exporter.
type Key = (u128, usize);

/// Why a body is not shared.
#[derive(Debug, thiserror::Error)]
enum Unshared {
    #[error("`max_bytes` is reached")]
    Full,
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// A queue's access to the shared bodies.
pub(crate) struct Sharing {
    bodies: Arc<SharedBodies>,
    queue: String,
}

// === impl SharedBodies ===

impl SharedBodies {
    /// Opens the bodies of earlier runs, and removes those that no queue needs.
    pub fn open(place: Place, limits: Limits) -> Result<Self, OpenError> {
        let bodies = Self {
            limits,
            secret: (0..24_u64)
                .flat_map(|part| RandomState::new().hash_one(part).to_le_bytes())
                .collect(),
            state: Mutex::new(State {
                next_number: 1,
                ..State::default()
            }),
            syncing: Mutex::new(()),
            queues: AtomicUsize::new(0),
            place,
        };
        let Some(disk) = bodies.place.existing(FOLDER).map_err(OpenError::Folder)? else {
            return Ok(bodies);
        };
        let found = bodies.state.lock().recover(disk)?;
        if found == 0 {
            return Ok(bodies);
        }
        let queues = bodies.place.queues().map_err(OpenError::Folder)?;
        for queue in queues {
            bodies.count(&queue);
        }
        bodies.state.lock().remove_free();
        Ok(bodies)
    }

    /// Finds which segments the queue holds. What cannot be read may need them all.
    fn count(&self, queue: &str) {
        let found = match self.place.existing(queue) {
            Ok(None) => return,
            Ok(Some(disk)) => disk.names().map(|names| {
                let (found, _) = numbers(&names);
                recover_segments(&*disk, &found, false, self)
            }),
            Err(error) => Err(error),
        };
        let mut state = self.state.lock();
        let Ok(segments) = found else {
            state.kept_below = state.next_number;
            return;
        };
        for (segment, found) in segments {
            let Ok(Ok((_, scan))) = found else {
                state.kept_below = state.next_number;
                continue;
            };
            for number in scan.references {
                state.hold(queue, segment, number);
            }
        }
    }

    /// Call for each open queue.
    pub fn join(self: &Arc<Self>, queue: String) -> Sharing {
        self.queues.fetch_add(1, Ordering::Relaxed);
        Sharing {
            bodies: Arc::clone(self),
            queue,
        }
    }

    fn store(&self, queue: &str, segment: u64, body: &[u8]) -> Option<(Reference, bool)> {
        let hash = XxHash3_128::oneshot_with_secret(&self.secret, body).ok()?;
        let key = (hash, body.len());
        let mut guard = self.state.lock();
        let state = &mut *guard;
        let found = state.recent.places.get(&key).copied();
        state.not_found = match found {
            Some(_) => 0,
            None => state.not_found.saturating_add(1),
        };
        if let Some(Some(reference)) = found
            && let Some(shared) = state.segments.get(&reference.segment)
            && !shared.failed_to_sync
            && !shared.is_removed
        {
            state.hold(queue, segment, reference.segment);
            return Some((reference, true));
        }
        if state.not_found > RECENT {
            state.recent.add(key, None);
            return None;
        }
        match state.append(&self.place, &self.limits, body) {
            Ok(reference) => {
                state.is_failing = false;
                state.recent.add(key, Some(reference));
                state.hold(queue, segment, reference.segment);
                Some((reference, false))
            }
            Err(error) => {
                if !std::mem::replace(&mut state.is_failing, true) {
                    tracing::warn!(
                        directory = %self.place.path(FOLDER).display(), %error,
                        "Failed to share batches between stored queues; each stores a copy."
                    );
                }
                None
            }
        }
    }

    /// Makes these segments durable, each up to a position. Queues that store the same batches ask for the same bodies: one sync is
    /// enough for all who wait for another one meanwhile.
    pub fn sync(&self, ends: &BTreeMap<u64, u64>) -> io::Result<()> {
        let _syncing = self.syncing.lock();
        let mut guard = self.state.lock();
        let state = &mut *guard;
        let Some(disk) = state.disk.clone() else {
            return Ok(());
        };
        let mut files = Vec::new();
        for (number, end) in ends {
            let Some(segment) = state.segments.get_mut(number) else {
                continue;
            };
            let Some(found) = &mut segment.files else {
                continue;
            };
            if segment.durable_len >= found.len.min(*end) {
                continue;
            }
            if segment.failed_to_sync {
                return Err(io::Error::other("an earlier sync of the same file failed"));
            }
            files.push((*number, found.len, found.open_records(&*disk)?));
        }
        let is_directory_dirty = std::mem::take(&mut state.is_directory_dirty);
        drop(guard);
        let synced = files.iter().try_for_each(|(_, _, file)| file.sync());
        let synced = synced.and_then(|()| match is_directory_dirty {
            true => disk.sync(),
            false => Ok(()),
        });
        let mut state = self.state.lock();
        if synced.is_err() {
            state.is_directory_dirty |= is_directory_dirty;
        }
        for (number, len, _) in files {
            let is_active = state.active == Some(number);
            if is_active && synced.is_err() {
                state.active = None;
            }
            if let Some(segment) = state.segments.get_mut(&number) {
                match synced {
                    Ok(()) => segment.durable_len = len,
                    Err(_) => segment.failed_to_sync = true,
                }
                // Hundreds may be waiting.
                if let Some(files) = &mut segment.files
                    && !is_active
                {
                    files.close();
                }
            }
        }
        synced
    }
}

impl Bodies for SharedBodies {
    fn find(&self, reference: &Reference, len: u32) -> io::Result<Body> {
        Ok(match self.state.lock().segments.get(&reference.segment) {
            None => Body::Missing,
            Some(SharedSegment { files: None, .. }) => Body::Damaged,
            Some(SharedSegment {
                files: Some(it), ..
            }) => match lies_in(reference, len, it.header.salt, it.len) {
                true => Body::Intact(Vec::new()),
                false => Body::Missing,
            },
        })
    }

    fn read(&self, reference: &Reference, len: u32) -> io::Result<Body> {
        match self.find(reference, len)? {
            Body::Intact(_) => {}
            other => return Ok(other),
        }
        let disk = self.state.lock().disk.clone();
        let Some(disk) = disk else {
            return Ok(Body::Missing);
        };
        match disk.open(&records_name(reference.segment)) {
            Ok(file) => read_body(&*file, reference, len),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Body::Missing),
            Err(error) => Err(error),
        }
    }
}

// === impl State ===

impl State {
    /// Returns the number of segments.
    fn recover(&mut self, disk: Arc<dyn Disk>) -> Result<usize, OpenError> {
        let names = disk.names().map_err(OpenError::Folder)?;
        let (found, orphans) = numbers(&names);
        for number in orphans {
            // Its records file is gone.
            let _ = disk.remove(&settled_name(number));
        }
        for (number, segment) in recover_segments(&*disk, &found, true, &NoBodies) {
            let failed = |error| OpenError::Segment {
                segment: number,
                error,
            };
            let files = match segment.map_err(failed)? {
                Ok((segment, _)) => Some(segment),
                Err(BadSegment::Version(version)) => {
                    return Err(OpenError::Version {
                        segment: number,
                        version,
                    });
                }
                Err(BadSegment::Damaged) => None,
            };
            self.bytes += files.as_ref().map_or(0, Segment::bytes);
            self.segments.insert(
                number,
                SharedSegment {
                    files,
                    durable_len: 0,
                    holders: 0,
                    failed_to_sync: false,
                    is_removed: false,
                },
            );
            self.next_number = number.saturating_add(1);
        }
        self.is_directory_dirty = !self.segments.is_empty();
        self.disk = Some(disk);
        Ok(self.segments.len())
    }

    fn append(
        &mut self,
        place: &Place,
        limits: &Limits,
        body: &[u8],
    ) -> Result<Reference, Unshared> {
        let record = (RECORD_HEADER + body.len()) as u64;
        if !self.has_room(limits, record) {
            self.reclaim_active();
        }
        if !self.has_room(limits, record) {
            return Err(Unshared::Full);
        }
        let disk = match &self.disk {
            Some(disk) => Arc::clone(disk),
            None => Arc::clone(self.disk.insert(place.create(FOLDER)?)),
        };
        let number = match self.active_for(limits, record) {
            Some(number) => number,
            None => self.begin_segment(&*disk)?,
        };
        let found = self.segments.get_mut(&number);
        let Some(segment) = found.and_then(|it| it.files.as_mut()) else {
            return Err(Unshared::Full);
        };
        let salt = segment.header.salt;
        let counts = Counts::default();
        let Some(header) = RecordHeader::new(salt, segment.next_index, counts, &[], body) else {
            return Err(Unshared::Full);
        };
        let file = segment.open_records(&*disk)?;
        if let Err(error) = file.append(&[&header.encode(salt), body]) {
            // If that fails too, the partial record stays as the segment's torn end.
            if file.truncate(segment.len).is_err() {
                self.active = None;
            }
            return Err(error.into());
        }
        let reference = Reference {
            segment: number,
            salt,
            at: segment.len,
            check: header.payload_check,
        };
        segment.len += record;
        segment.next_index += 1;
        self.bytes += record;
        Ok(reference)
    }

    fn has_room(&self, limits: &Limits, record: u64) -> bool {
        let segment = match self.active_for(limits, record) {
            Some(_) => 0,
            None => 2 * SEGMENT_HEADER as u64,
        };
        self.bytes + segment + record <= limits.max_bytes
    }

    /// The active segment, if the record fits it.
    fn active_for(&self, limits: &Limits, record: u64) -> Option<u64> {
        let number = self.active?;
        let segment = self.segments.get(&number)?.files.as_ref()?;
        let is_empty = segment.len == SEGMENT_HEADER as u64;
        let fits = segment.len + record <= limits.segment_bytes || is_empty;
        (fits && segment.next_index < MAX_RECORDS).then_some(number)
    }

    fn begin_segment(&mut self, disk: &dyn Disk) -> io::Result<u64> {
        self.seal();
        let number = self.next_number;
        // Even after a failure: a partial file may exist.
        self.next_number += 1;
        let header = SegmentHeader {
            version: VERSION,
            number,
            salt: RandomState::new().hash_one(number),
        };
        let files = Segment::create(disk, header)?;
        self.bytes += files.bytes();
        self.segments.insert(
            number,
            SharedSegment {
                files: Some(files),
                durable_len: 0,
                holders: 0,
                failed_to_sync: false,
                is_removed: false,
            },
        );
        self.active = Some(number);
        self.is_directory_dirty = true;
        Ok(number)
    }

    /// Stops writing to the active segment.
    fn seal(&mut self) {
        let active = self.active.take();
        let segment = active.and_then(|number| self.segments.get_mut(&number));
        if let Some(files) = segment.and_then(|it| it.files.as_mut()) {
            files.close();
        }
        self.remove_free();
    }

    fn hold(&mut self, queue: &str, segment: u64, number: u64) {
        let Some(shared) = self.segments.get_mut(&number) else {
            return;
        };
        let held = match self.held.get_mut(queue) {
            Some(held) => held,
            None => self.held.entry(queue.to_owned()).or_default(),
        };
        if held.entry(segment).or_default().insert(number) {
            shared.holders += 1;
        }
    }

    fn release(&mut self, limits: &Limits, queue: &str, segment: u64) {
        let held = self.held.get_mut(queue).and_then(|it| it.remove(&segment));
        for number in held.into_iter().flatten() {
            if let Some(shared) = self.segments.get_mut(&number) {
                shared.holders = shared.holders.saturating_sub(1);
            }
        }
        let active = self.active_segment().and_then(|it| it.files.as_ref());
        if active.is_some_and(|files| files.len > limits.segment_bytes / 4) {
            self.reclaim_active();
        }
        self.remove_free();
    }

    fn active_segment(&self) -> Option<&SharedSegment> {
        self.segments.get(&self.active?)
    }

    /// Ends the active segment if no queue holds it, to free its space.
    fn reclaim_active(&mut self) -> bool {
        let before = self.bytes;
        if self.active_segment().is_some_and(|it| it.holders == 0) {
            self.seal();
        }
        self.bytes < before
    }

    /// Removes the segments that no queue holds.
    fn remove_free(&mut self) {
        let Some(disk) = self.disk.clone() else {
            return;
        };
        let (active, kept_below) = (self.active, self.kept_below);
        let free = self.segments.iter().filter(|(number, segment)| {
            segment.holders == 0 && active != Some(**number) && **number >= kept_below
        });
        let free: Vec<u64> = free.map(|(number, _)| *number).collect();
        for number in free {
            self.is_directory_dirty = true;
            if let Some(segment) = self.segments.get_mut(&number) {
                segment.is_removed = true;
            }
            // It still counts, and removal is retried with the next one.
            if let Err(error) = remove_files(&*disk, number) {
                tracing::warn!(segment = number, %error, "Failed to remove shared batches that no stored queue needs.");
                continue;
            }
            if let Some(segment) = self.segments.remove(&number) {
                self.bytes -= segment.files.as_ref().map_or(0, Segment::bytes);
            }
        }
    }
}

// === impl Recent ===

impl Recent {
    fn add(&mut self, key: Key, place: Option<Reference>) {
        if self.places.insert(key, place).is_none() {
            self.order.push_back(key);
        }
        if self.order.len() > RECENT
            && let Some(oldest) = self.order.pop_front()
        {
            self.places.remove(&oldest);
        }
    }
}

// === impl Sharing ===

impl Sharing {
    /// Whether a record with this body should have a reference.
    pub fn wants(&self, body: &[u8]) -> bool {
        body.len() >= MIN_BODY && self.bodies.queues.load(Ordering::Relaxed) > 1
    }

    /// Stores a body for a record in this segment of the queue, and says whether it was there already. `None` if that
    /// fails.
    pub fn store(&self, segment: u64, body: &[u8]) -> Option<(Reference, bool)> {
        self.bodies.store(&self.queue, segment, body)
    }

    /// Call when all records of this segment of the queue are settled.
    pub fn release(&self, segment: u64) {
        let mut state = self.bodies.state.lock();
        state.release(&self.bodies.limits, &self.queue, segment);
    }

    /// Frees the space of bodies that no queue needs.
    pub fn reclaim_active(&self) -> bool {
        self.bodies.state.lock().reclaim_active()
    }

    /// All segments with bodies of this queue's records.
    pub fn held(&self) -> BTreeSet<u64> {
        let state = self.bodies.state.lock();
        let held = state.held.get(&self.queue);
        held.into_iter()
            .flat_map(BTreeMap::values)
            .flatten()
            .copied()
            .collect()
    }

    pub fn bodies(&self) -> &Arc<SharedBodies> {
        &self.bodies
    }
}

impl Drop for Sharing {
    fn drop(&mut self) {
        self.bodies.queues.fetch_sub(1, Ordering::Relaxed);
    }
}
