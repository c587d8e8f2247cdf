//! The sampled files: their entries in the BPF map, their numbers, and their eviction.

use std::collections::hash_map::Entry;
use std::collections::{BTreeSet, HashMap as StdHashMap, VecDeque};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use aya::maps::{HashMap, MapData, Queue};
use parking_lot::Mutex;
use profcol_ebpf_common::file::{FileEntry, FileId, TableRef};
use profcol_ebpf_common::record;
use profcol_ebpf_common::settings::FRAME_CACHE_TTL_SHIFT;

use crate::sampled_files::{SampledFile, SampledFiles};
use crate::sys;

/// Longer than programs cache a number and records wait in the ring buffer.
const NUMBER_REUSE_DELAY: Duration = Duration::from_secs(10);
const _: () = assert!(NUMBER_REUSE_DELAY.as_nanos() > 1 << FRAME_CACHE_TTL_SHIFT);

/// Backoff before a file that could not be opened may be announced again.
const INITIAL_RETRY_DELAY: Duration = Duration::from_millis(50);
const MAX_RETRY_DELAY: Duration = Duration::from_secs(10);

/// A file announced by the programs.
#[derive(Clone, Debug)]
pub struct AnnouncedFile {
    pub file: record::File,
    /// Empty if unknown.
    pub path: PathBuf,
}

impl AnnouncedFile {
    /// The process in which it was sampled.
    pub fn pid(&self) -> u32 {
        self.file.pid
    }

    /// The time since it was sampled.
    pub fn age(&self) -> Duration {
        Duration::from_nanos(sys::since_boot().saturating_sub(self.file.time))
    }
}

pub struct Files {
    state: Mutex<FilesState>,
    sampled_files: SampledFiles,
    /// Maximum number of tracked files.
    limit: usize,
}

struct FilesState {
    entries: HashMap<MapData, FileId, FileEntry>,
    free_numbers: Queue<MapData, u32>,
    known: StdHashMap<FileId, TrackedFile>,
    /// Numbers that pending frames may still use, with the time of eviction.
    quarantined: VecDeque<(Instant, u32)>,
    /// When each file may be announced again.
    retries: BTreeSet<(Instant, FileId)>,
}

#[derive(Clone, Copy, Debug)]
struct TrackedFile {
    number: u32,
    /// Number of failed attempts to open it.
    tries: u32,
    /// Whether it is being processed, or done.
    is_claimed: bool,
}

struct Tracked<'a> {
    file: &'a mut TrackedFile,
    is_new: bool,
}

impl FilesState {
    fn track(&mut self, file: &record::File) -> Tracked<'_> {
        let new = TrackedFile {
            number: file.number,
            tries: 0,
            is_claimed: false,
        };
        match self.known.entry(file.id) {
            Entry::Occupied(known) => {
                let known = known.into_mut();
                // If not, evicted, and sampled again since.
                let is_same = known.number == file.number;
                if !is_same {
                    *known = new;
                }
                Tracked {
                    file: known,
                    is_new: !is_same,
                }
            }
            Entry::Vacant(entry) => Tracked {
                file: entry.insert(new),
                is_new: true,
            },
        }
    }

    /// Makes the programs announce the file at its next sample.
    fn await_sample(&mut self, id: &FileId) {
        let Ok(mut entry) = self.entries.get(id, 0) else {
            return;
        };
        entry.table = TableRef::UNOPENED;
        if let Err(error) = self.entries.insert(id, entry, 0) {
            tracing::debug!(%error, "failed to reset a file entry");
        }
    }
}

impl Files {
    pub fn new(
        entries: HashMap<MapData, FileId, FileEntry>,
        free_numbers: Queue<MapData, u32>,
        sampled_files: SampledFiles,
        limit: usize,
    ) -> Self {
        Self {
            state: Mutex::new(FilesState {
                entries,
                free_numbers,
                known: StdHashMap::new(),
                quarantined: VecDeque::new(),
                retries: BTreeSet::new(),
            }),
            sampled_files,
            limit,
        }
    }

    pub fn sampled_files(&self) -> &SampledFiles {
        &self.sampled_files
    }

    /// Makes the file's path known, even if it is never opened: its process may exit first.
    pub fn announce(&self, announced: &AnnouncedFile) {
        let AnnouncedFile { file, path } = announced;
        if self.state.lock().track(file).is_new {
            let sampled = SampledFile {
                path: path.to_string_lossy().into_owned(),
                ..SampledFile::default()
            };
            self.sampled_files.insert(file.number, sampled);
        }
    }

    /// Claims the file for opening. Only the first of several announcements gets it.
    pub fn take(&self, announced: &AnnouncedFile) -> bool {
        let mut state = self.state.lock();
        let known = state.track(&announced.file).file;
        !std::mem::replace(&mut known.is_claimed, true)
    }

    /// Lets the next sample announce the file again, unless it is claimed.
    pub fn postpone(&self, file: &record::File) {
        let mut state = self.state.lock();
        if !state.track(file).file.is_claimed {
            state.await_sample(&file.id);
        }
    }

    /// Lets a later sample announce the file again, perhaps through a process that lives longer. Returns the
    /// number of attempts so far.
    pub fn retry_later(&self, file: &record::File) -> u32 {
        let mut state = self.state.lock();
        let Some(known) = state.known.get_mut(&file.id) else {
            return 0;
        };
        known.is_claimed = false;
        known.tries += 1;
        let tries = known.tries;
        let wait = INITIAL_RETRY_DELAY
            .saturating_mul(1 << tries.min(10))
            .min(MAX_RETRY_DELAY);
        state.retries.insert((Instant::now() + wait, file.id));
        tries
    }

    /// Lets due files be announced again. Returns when the next one is due.
    pub fn wake_retries(&self) -> Option<Instant> {
        let mut state = self.state.lock();
        let now = Instant::now();
        loop {
            let &(due, id) = state.retries.first()?;
            if due > now {
                return Some(due);
            }
            state.retries.pop_first();
            if state.known.get(&id).is_some_and(|known| !known.is_claimed) {
                state.await_sample(&id);
            }
        }
    }

    /// Makes the programs use the table. False if the update failed, or the file was evicted.
    pub fn publish(&self, file: &record::File, table: TableRef) -> bool {
        let mut state = self.state.lock();
        let is_known = state
            .known
            .get(&file.id)
            .is_some_and(|known| known.number == file.number);
        if !is_known {
            return false;
        }
        let entry = FileEntry {
            number: file.number,
            table,
            used: sys::since_boot(),
        };
        match state.entries.insert(file.id, entry, 0) {
            Ok(()) => true,
            Err(error) => {
                tracing::debug!(%error, "failed to publish an unwind table");
                false
            }
        }
    }

    /// The number of files to evict. Keeps some room for bursts.
    pub fn surplus(&self) -> usize {
        let state = self.state.lock();
        let taken = state.known.len() + state.quarantined.len();
        let most = self.limit - self.limit / 4;
        if taken <= most {
            return 0;
        }
        (taken - most + self.limit / 8).saturating_sub(state.quarantined.len())
    }

    /// Evicts the least recently used files until `is_enough` returns true for the number of one. Keeps files
    /// used within `recent`.
    pub fn evict(&self, recent: Duration, mut is_enough: impl FnMut(u32) -> bool) {
        let mut state = self.state.lock();
        let now = sys::since_boot();
        let recent = u64::try_from(recent.as_nanos()).unwrap_or(u64::MAX);
        let mut by_use: Vec<(u64, FileId, u32)> = state
            .entries
            .iter()
            .flatten()
            .filter(|(id, entry)| {
                state
                    .known
                    .get(id)
                    .is_some_and(|known| known.number == entry.number)
            })
            .filter(|(_, entry)| now.saturating_sub(entry.used) >= recent)
            .map(|(id, entry)| (entry.used, id, entry.number))
            .collect();
        by_use.sort_unstable_by_key(|&(used, ..)| used);
        for (_, id, number) in by_use {
            if let Err(error) = state.entries.remove(&id) {
                tracing::debug!(number, %error, "failed to remove a file entry");
                continue;
            }
            state.known.remove(&id);
            state.quarantined.push_back((Instant::now(), number));
            if is_enough(number) {
                break;
            }
        }
    }

    /// Frees quarantined numbers; the caller has symbolized all frames so far. Keeps recent ones, since frames
    /// with them may still arrive.
    pub fn free_quarantined_numbers(&self) {
        let mut state = self.state.lock();
        while let Some(&(since, number)) = state.quarantined.front()
            && since.elapsed() >= NUMBER_REUSE_DELAY
        {
            state.quarantined.pop_front();
            self.sampled_files.remove(number);
            if let Err(error) = state.free_numbers.push(number, 0) {
                tracing::debug!(number, %error, "failed to free a file number");
            }
        }
    }
}
