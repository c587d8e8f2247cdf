//! The files to read, and how far each has been read.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use glob::Pattern;
use parking_lot::Mutex;
use profcol_profile::Received;

use super::config::{OtlpFileConfig, StartAt};
use super::positions::{FileId, Positions, Span};
use super::record::{RecordError, decode};
use super::tail::{End, FoundRecord, Tail};

/// Beyond this number, files are closed once read to their end.
const MAX_OPEN: usize = 128;

/// How long a renamed or deleted file that no longer matches is still watched: its
/// writer may not have noticed yet.
const ROTATION_GRACE: Duration = Duration::from_secs(10);

/// Approximate size of a portion of records.
pub(super) const READ_BATCH_BYTES: usize = 1 << 20;

pub(super) struct Files {
    config: OtlpFileConfig,
    exclude: Vec<Pattern>,
    positions: Arc<Mutex<Positions>>,
    tails: HashMap<FileId, Tail>,
    /// Files with something to read, the next one last.
    due: Vec<FileId>,
    /// Paths that fail to be read, already logged, and why.
    unreadable: BTreeMap<PathBuf, String>,
    /// Number of files opened.
    read_files: usize,
}

/// A record that was read.
pub(super) struct Record {
    pub(super) path: PathBuf,
    pub(super) offset: u64,
    pub(super) span: Span,
    pub(super) content: Result<Received, RecordError>,
}

struct Candidate {
    path: PathBuf,
    id: FileId,
    length: u64,
    modified: SystemTime,
}

impl Files {
    pub(super) fn new(config: &OtlpFileConfig, positions: Arc<Mutex<Positions>>) -> Self {
        let exclude = config
            .exclude
            .iter()
            .filter_map(|glob| Pattern::new(glob).ok());
        Self {
            exclude: exclude.collect(),
            config: config.clone(),
            positions,
            tails: HashMap::new(),
            due: Vec::new(),
            unreadable: BTreeMap::new(),
            read_files: 0,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.tails.is_empty()
    }

    pub(super) fn read_files(&self) -> usize {
        self.read_files
    }

    pub(super) fn unreadable_files(&self) -> usize {
        self.unreadable.len()
    }

    /// Why files are not read, if any.
    pub(super) fn error(&self) -> Option<String> {
        let (path, error) = self.unreadable.first_key_value()?;
        let first = format!("failed to read {}: {error}", path.display());
        Some(match self.unreadable.len() {
            1 => first,
            all => format!("{first}; {all} files cannot be read"),
        })
    }

    pub(super) fn open_files(&self) -> usize {
        self.tails.values().filter(|tail| tail.is_open()).count()
    }

    /// The first scan: sets the start positions, if there was no run before that stored its own.
    pub(super) fn begin(&mut self, is_resumed: bool) {
        let at_end = self.config.start_at == StartAt::End;
        let format = self.config.format;
        self.scan();
        if at_end && !is_resumed {
            for tail in self.tails.values_mut() {
                match tail.skip_to_end(format) {
                    Ok(()) => self.positions.lock().begin(tail.id, tail.position()),
                    Err(error) => warn_once(&mut self.unreadable, &tail.path, &error),
                }
            }
        }
    }

    /// Finds new, grown, renamed and deleted files.
    pub(super) fn scan(&mut self) {
        let (mut candidates, failed) = self.candidates();
        // Rotated files are older than their replacements.
        candidates.sort_by(|a, b| (b.modified, &b.path).cmp(&(a.modified, &a.path)));
        let present: HashSet<FileId> = candidates.iter().map(|found| found.id).collect();
        let paths: HashSet<&Path> = candidates
            .iter()
            .map(|found| found.path.as_path())
            .collect();
        self.unreadable.retain(|path, _| {
            paths.contains(path.as_path()) || failed.iter().any(|(failed, _)| failed == path)
        });
        for (path, error) in &failed {
            warn_once(&mut self.unreadable, path, error);
        }

        self.due.clear();
        for found in candidates {
            match self.tails.get_mut(&found.id) {
                Some(tail) => {
                    tail.path = found.path;
                    if tail.differs_from(found.length) {
                        self.due.push(found.id);
                    }
                }
                None => match self.open(&found.path) {
                    Ok(tail) => {
                        self.unreadable.remove(&found.path);
                        self.read_files += 1;
                        self.due.push(tail.id);
                        self.tails.insert(tail.id, tail);
                    }
                    Err(error) => warn_once(&mut self.unreadable, &found.path, &error),
                },
            }
        }
        let mut positions = self.positions.lock();
        self.tails.retain(|id, tail| {
            let stays = present.contains(id) || tail.is_open();
            if !stays {
                positions.forget(*id);
            }
            stays
        });
        drop(positions);
        let vanished = self.tails.keys().filter(|id| !present.contains(id));
        self.due.extend(vanished);
    }

    /// Opens a file at the position where reading ended, if it was read before.
    fn open(&self, path: &Path) -> io::Result<Tail> {
        let mut tail = Tail::open(path)?;
        let known = self.positions.lock().next(tail.id);
        if let Some((generation, position)) = known {
            tail.resume(generation, position)?;
        }
        Ok(tail)
    }

    /// A portion of records; empty at the end of all files.
    pub(super) fn read(&mut self) -> Vec<Record> {
        let mut records = Vec::new();
        let mut size = 0;
        while let Some(&id) = self.due.last() {
            match self.next_of(id) {
                Ok(Some((record, bytes))) => {
                    records.push(record);
                    size += bytes;
                    if size >= READ_BATCH_BYTES {
                        break;
                    }
                }
                Ok(None) => self.leave(id),
                Err(error) => {
                    if let Some(tail) = self.tails.get(&id) {
                        warn_once(&mut self.unreadable, &tail.path, &error);
                    }
                    self.due.pop();
                }
            }
        }
        records
    }

    /// The next record, and its size in the file.
    fn next_of(&mut self, id: FileId) -> io::Result<Option<(Record, usize)>> {
        let end = self.end_of(id);
        let (format, limit) = (self.config.format, self.config.max_record_size);
        let Some(tail) = self.tails.get_mut(&id) else {
            return Ok(None);
        };
        let Some(found) = tail.next(format, limit, end)? else {
            return Ok(None);
        };
        self.unreadable.remove(&tail.path);
        let FoundRecord { raw, span } = found;
        let size = raw.record.as_ref().map_or(0, Bytes::len);
        let record = Record {
            path: tail.path.clone(),
            offset: raw.offset,
            span,
            content: raw.record.and_then(|bytes| decode(bytes, format, limit)),
        };
        Ok(Some((record, size)))
    }

    /// How the file ends: if it is final, the rest at its end is a record.
    fn end_of(&self, id: FileId) -> End {
        match self.tails.get(&id) {
            _ if !self.config.follow => End::Final,
            Some(tail) if self.is_gone(tail) => End::Final,
            _ => End::Open,
        }
    }

    fn is_gone(&self, tail: &Tail) -> bool {
        let at_its_path = fs::metadata(&tail.path).is_ok_and(|found| FileId::of(&found) == tail.id);
        !at_its_path && tail.grew.elapsed() >= ROTATION_GRACE
    }

    /// Called when the file was read to its end.
    fn leave(&mut self, id: FileId) {
        self.due.pop();
        let gone = self.tails.get(&id).is_some_and(|tail| self.is_gone(tail));
        if gone {
            self.tails.remove(&id);
            self.positions.lock().forget(id);
        } else if self.open_files() > MAX_OPEN
            && let Some(tail) = self.tails.get_mut(&id)
        {
            tail.close();
        }
    }

    /// The files that match, and paths whose file cannot be looked at.
    fn candidates(&self) -> (Vec<Candidate>, Vec<(PathBuf, io::Error)>) {
        let (mut candidates, mut failed) = (Vec::new(), Vec::new());
        let mut seen = HashSet::new();
        for include in &self.config.include {
            // Validated with the configuration.
            let Ok(paths) = glob::glob(include) else {
                continue;
            };
            for path in paths.flatten() {
                if self
                    .exclude
                    .iter()
                    .any(|pattern| pattern.matches_path(&path))
                {
                    continue;
                }
                let metadata = match fs::metadata(&path) {
                    Ok(metadata) => metadata,
                    Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                    Err(error) => {
                        failed.push((path, error));
                        continue;
                    }
                };
                let id = FileId::of(&metadata);
                if metadata.is_file() && seen.insert(id) {
                    candidates.push(Candidate {
                        path,
                        id,
                        length: metadata.len(),
                        modified: metadata.modified().unwrap_or(SystemTime::UNIX_EPOCH),
                    });
                }
            }
        }
        (candidates, failed)
    }
}

/// Logs an unreadable file once.
fn warn_once(unreadable: &mut BTreeMap<PathBuf, String>, path: &Path, error: &io::Error) {
    let known = unreadable.insert(path.to_owned(), error.to_string());
    if known.is_none() {
        tracing::warn!(path = %path.display(), %error, "Failed to read a file; retrying.");
    }
}
