//! How far each file was delivered: up to its first record in flight.

use std::collections::{BTreeMap, HashMap};
use std::os::unix::fs::MetadataExt;

use serde::{Deserialize, Serialize};
use twox_hash::XxHash3_64;

/// The identity of a file, which survives a rename.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct FileId {
    pub(super) device: u64,
    pub(super) inode: u64,
}

/// A position in a file, and a fingerprint of the bytes before it: an inode number is used again once its file is
/// deleted, and a file may be truncated.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub(super) struct Position {
    pub(super) offset: u64,
    pub(super) fingerprint: Fingerprint,
}

/// Identifies bytes by their last ones: the first records of two files of a host begin alike.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub(super) struct Fingerprint {
    length: u16,
    checksum: u64,
}

/// The range of the file that a record and what was skipped before it take.
#[derive(Clone, Copy, Debug)]
pub(super) struct Span {
    pub(super) file: FileId,
    /// Counts how often the file began anew.
    pub(super) generation: u64,
    pub(super) from: Position,
    pub(super) to: Position,
}

/// The positions of files.
#[derive(Debug, Default)]
pub(super) struct Positions {
    files: HashMap<FileId, Progress>,
    /// Records read so far.
    reads: u64,
    /// Whether a position has changed since the last encoding.
    has_changed: bool,
}

#[derive(Debug)]
struct Progress {
    generation: u64,
    /// Where each record in flight begins.
    in_flight: BTreeMap<u64, Position>,
    /// The position after the last record that was read.
    next: Position,
    /// Value of `reads` when it was.
    last_read: u64,
    /// The file is gone: its positions are removed once nothing is in flight.
    is_gone: bool,
}

/// A position as it is stored.
#[derive(Deserialize, Serialize)]
struct Stored {
    device: u64,
    inode: u64,
    #[serde(flatten)]
    position: Position,
}

impl FileId {
    pub(super) fn of(metadata: &std::fs::Metadata) -> Self {
        Self {
            device: metadata.dev(),
            inode: metadata.ino(),
        }
    }
}

impl Fingerprint {
    pub(super) const MAX: u16 = 1024;

    pub(super) fn of(bytes: &[u8]) -> Self {
        let start = bytes.len().saturating_sub(usize::from(Self::MAX));
        let last = bytes.get(start..).unwrap_or_default();
        Self {
            length: last.len() as u16,
            checksum: XxHash3_64::oneshot(last),
        }
    }

    pub(super) fn length(self) -> u16 {
        self.length
    }
}

impl Default for Fingerprint {
    fn default() -> Self {
        Self::of(&[])
    }
}

// === impl Positions ===

impl Positions {
    /// Decodes stored positions.
    pub(super) fn decode(stored: &[u8]) -> Result<Self, serde_json::Error> {
        let stored: Vec<Stored> = serde_json::from_slice(stored)?;
        let file = |stored: Stored| {
            let id = FileId {
                device: stored.device,
                inode: stored.inode,
            };
            (id, Progress::at(0, stored.position))
        };
        Ok(Self {
            files: stored.into_iter().map(file).collect(),
            ..Self::default()
        })
    }

    /// The positions to store.
    pub(super) fn encode(&mut self) -> Result<Vec<u8>, serde_json::Error> {
        self.has_changed = false;
        let files = self.files.iter();
        let mut stored: Vec<Stored> = files
            .map(|(id, progress)| Stored {
                device: id.device,
                inode: id.inode,
                position: progress.position(),
            })
            .collect();
        stored.sort_by_key(|file| (file.device, file.inode));
        serde_json::to_vec(&stored)
    }

    /// Number of files.
    pub(super) fn len(&self) -> usize {
        self.files.len()
    }

    pub(super) fn has_changed(&self) -> bool {
        self.has_changed
    }

    /// The last encoding was not stored.
    pub(super) fn not_stored(&mut self) {
        self.has_changed = true;
    }

    /// Where to continue in a file, and its generation.
    pub(super) fn next(&self, file: FileId) -> Option<(u64, Position)> {
        let progress = self.files.get(&file)?;
        Some((progress.generation, progress.next))
    }

    /// Reading of a file begins at a position.
    pub(super) fn begin(&mut self, file: FileId, position: Position) {
        self.files.insert(file, Progress::at(0, position));
        self.has_changed = true;
    }

    /// A record was read; those of a file are read in order.
    pub(super) fn read(&mut self, span: &Span) {
        self.reads += 1;
        let fresh = || Progress::at(span.generation, span.from);
        let progress = self.files.entry(span.file).or_insert_with(fresh);
        if progress.generation != span.generation {
            *progress = fresh();
        }
        progress.last_read = self.reads;
        progress.is_gone = false;
        progress.in_flight.insert(span.from.offset, span.from);
        progress.next = span.to;
    }

    /// A record was delivered or skipped. Its file may have begun anew since.
    pub(super) fn settle(&mut self, span: &Span) {
        let progress = self.files.get_mut(&span.file);
        let Some(progress) = progress.filter(|it| it.generation == span.generation) else {
            return;
        };
        progress.in_flight.remove(&span.from.offset);
        self.has_changed = true;
        if progress.is_gone && progress.in_flight.is_empty() {
            self.files.remove(&span.file);
        }
    }

    /// The file is gone. Another one may get its inode number while records are in flight, so these end first.
    pub(super) fn forget(&mut self, file: FileId) {
        if let Some(progress) = self.files.get_mut(&file) {
            progress.is_gone = true;
            if progress.in_flight.is_empty() {
                self.files.remove(&file);
                self.has_changed = true;
            }
        }
    }

    /// Forgets files beyond `max`, those read longest ago first; returns their number.
    pub(super) fn limit(&mut self, max: usize) -> usize {
        let excess = self.files.len().saturating_sub(max);
        if excess == 0 {
            return 0;
        }
        let files = self.files.iter();
        let idle = files.filter(|(_, progress)| progress.in_flight.is_empty());
        let mut idle: Vec<_> = idle
            .map(|(id, progress)| (progress.last_read, *id))
            .collect();
        idle.sort_unstable();
        idle.truncate(excess);
        for (_, id) in &idle {
            self.files.remove(id);
        }
        idle.len()
    }
}

impl Progress {
    fn at(generation: u64, next: Position) -> Self {
        Self {
            generation,
            in_flight: BTreeMap::new(),
            next,
            last_read: 0,
            is_gone: false,
        }
    }

    fn position(&self) -> Position {
        let first = self.in_flight.first_key_value();
        first.map_or(self.next, |(_, position)| *position)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(inode: u64) -> FileId {
        FileId { device: 1, inode }
    }

    fn span(inode: u64, generation: u64, from: u64, to: u64) -> Span {
        let position = |offset| Position {
            offset,
            fingerprint: Fingerprint::of(&offset.to_le_bytes()),
        };
        Span {
            file: file(inode),
            generation,
            from: position(from),
            to: position(to),
        }
    }

    /// The inode and offset of each file, after a restart.
    fn stored(positions: &mut Positions) -> Vec<(u64, u64)> {
        let again = Positions::decode(&positions.encode().unwrap()).unwrap();
        let files = again.files.iter();
        let mut stored: Vec<_> = files
            .map(|(id, progress)| (id.inode, progress.next.offset))
            .collect();
        stored.sort_unstable();
        stored
    }

    #[test]
    fn a_file_counts_as_read_up_to_its_first_record_in_flight() {
        let mut positions = Positions::default();
        let records = [(0, 10), (10, 20), (20, 35)].map(|(from, to)| span(7, 0, from, to));
        for record in &records {
            positions.read(record);
        }
        assert!(!positions.has_changed());
        assert_eq!(stored(&mut positions), [(7, 0)]);
        positions.settle(&records[1]);
        assert_eq!(stored(&mut positions), [(7, 0)]);
        positions.settle(&records[0]);
        assert!(positions.has_changed());
        assert_eq!(stored(&mut positions), [(7, 20)]);
        assert!(!positions.has_changed());
        positions.settle(&records[2]);
        assert_eq!(stored(&mut positions), [(7, 35)]);
        assert_eq!(positions.next(file(7)), Some((0, records[2].to)));
    }

    #[test]
    fn records_in_flight_of_a_truncated_file_do_not_move_its_position() {
        let mut positions = Positions::default();
        let before = [span(7, 0, 0, 10), span(7, 0, 10, 20)];
        let after = [span(7, 1, 0, 15), span(7, 1, 15, 40)];
        for record in before.iter().chain(&after) {
            positions.read(record);
        }
        positions.settle(&before[0]);
        positions.settle(&before[1]);
        assert_eq!(stored(&mut positions), [(7, 0)]);
        positions.settle(&after[0]);
        assert_eq!(stored(&mut positions), [(7, 15)]);
    }

    #[test]
    fn the_files_read_longest_ago_are_forgotten() {
        let mut positions = Positions::default();
        for inode in [3, 1, 2, 3] {
            let record = span(inode, 0, 0, 10);
            positions.read(&record);
            positions.settle(&record);
        }
        assert_eq!(positions.limit(3), 0);
        assert_eq!(positions.limit(2), 1);
        assert_eq!(stored(&mut positions), [(2, 10), (3, 10)]);
        // Its next record.
        positions.read(&span(1, 0, 10, 20));
        assert_eq!(stored(&mut positions), [(1, 10), (2, 10), (3, 10)]);
        // It is in flight.
        assert_eq!(positions.limit(0), 2);
        assert_eq!(stored(&mut positions), [(1, 10)]);
    }

    #[test]
    fn a_new_file_with_the_inode_of_a_deleted_one_is_told_from_it() {
        let mut positions = Positions::default();
        let old = span(7, 0, 0, 10);
        positions.read(&old);
        positions.forget(file(7));
        // It is compared with the bytes before this position, and differs.
        assert_eq!(positions.next(file(7)), Some((0, old.to)));
        let new = span(7, 1, 0, 10);
        positions.read(&new);
        positions.settle(&old);
        assert_eq!(stored(&mut positions), [(7, 0)]);
        positions.settle(&new);
        assert_eq!(stored(&mut positions), [(7, 10)]);
        positions.forget(file(7));
        assert_eq!(stored(&mut positions), []);
    }

    #[test]
    fn a_fingerprint_is_of_the_last_bytes() {
        let long = [7; 3000];
        assert_eq!(Fingerprint::of(&long), Fingerprint::of(&long[..1024]));
        assert_eq!(Fingerprint::of(&long).length(), Fingerprint::MAX);
        assert_ne!(Fingerprint::of(&long[..5]), Fingerprint::of(&long[..6]));
        assert_ne!(Fingerprint::of(b"ab"), Fingerprint::of(b"ac"));
        assert_eq!(Fingerprint::of(b""), Fingerprint::default());
    }

    #[test]
    fn other_content_is_no_positions() {
        for stored in ["", "{}", "[{\"inode\": 1}]", "[{\"inode\": -1}]"] {
            assert!(Positions::decode(stored.as_bytes()).is_err(), "{stored}");
        }
    }
}
