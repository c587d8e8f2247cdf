//! The state of a component that continues where it stopped: one small file, replaced as a whole.
//!
//! A log would not fit: only the newest state counts, and it is written anew each time.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use profcol_component::files;

use crate::format::check;

const ENDING: &str = "checkpoint";
const UNFINISHED: &str = "unfinished";

/// Begins the first line, before the version and the checksum of the rest.
const MAGIC: &str = "profcol checkpoint";
const VERSION: u32 = 1;

/// Maximum size of a file, so that a damaged one does not fill the memory.
const MAX_BYTES: u64 = 64 << 20;

/// A file with the state of a component, in the directory of a storage.
#[derive(Debug)]
pub struct Checkpoint {
    directory: PathBuf,
    path: PathBuf,
    unfinished: PathBuf,
}

/// Why a stored state is unusable.
#[derive(Debug, thiserror::Error)]
pub enum BadCheckpoint {
    #[error("failed to read {path}: {error}")]
    Unreadable {
        path: PathBuf,
        #[source]
        error: io::Error,
    },
    #[error("{0} is damaged")]
    Damaged(PathBuf),
    #[error("{path} has format version {version}, of another profcol")]
    Version { path: PathBuf, version: u32 },
}

impl Checkpoint {
    pub(crate) fn new(directory: &Path, name: &str) -> Self {
        Self {
            directory: directory.to_owned(),
            path: directory.join(format!("{name}.{ENDING}")),
            unfinished: directory.join(format!("{name}.{UNFINISHED}")),
        }
    }

    /// The checkpoint in a file with this name.
    pub(crate) fn of_file(directory: &Path, name: &str) -> Option<Self> {
        let name = name.strip_suffix(ENDING)?.strip_suffix('.')?;
        Some(Self::new(directory, name))
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The stored state, or `None` if there is none yet. Blocking.
    pub fn load(&self) -> Result<Option<Vec<u8>>, BadCheckpoint> {
        let mut bytes = Vec::new();
        let reading = File::open(&self.path)
            .and_then(|file| file.take(MAX_BYTES + 1).read_to_end(&mut bytes));
        match reading {
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => {
                let path = self.path.clone();
                return Err(BadCheckpoint::Unreadable { path, error });
            }
        }
        decode(&bytes, &self.path).map(Some)
    }

    /// Replaces the stored state. It survives a power failure, and one before that leaves the state of before. Blocking.
    pub fn store(&self, state: &[u8]) -> io::Result<()> {
        let mut options = files::options();
        let opened = options.write(true).create(true).truncate(true);
        let mut file = opened.open(&self.unfinished)?;
        file.write_all(first_line(state).as_bytes())?;
        file.write_all(state)?;
        file.sync_all()?;
        fs::rename(&self.unfinished, &self.path)?;
        File::open(&self.directory)?.sync_all()
    }
}

fn first_line(state: &[u8]) -> String {
    format!("{MAGIC} {VERSION} {:016x}\n", check(0, state))
}

fn decode(bytes: &[u8], path: &Path) -> Result<Vec<u8>, BadCheckpoint> {
    let damaged = || BadCheckpoint::Damaged(path.to_owned());
    let end = memchr::memchr(b'\n', bytes).filter(|_| bytes.len() as u64 <= MAX_BYTES);
    let (line, state) = bytes.split_at(end.ok_or_else(damaged)? + 1);
    if line == first_line(state).as_bytes() {
        return Ok(state.to_owned());
    }
    let line = str::from_utf8(line).ok();
    let fields = line.and_then(|line| line.strip_prefix(MAGIC)?.trim().split_once(' '));
    match fields.map(|(version, _)| version.parse()) {
        Some(Ok(version)) if version != VERSION => Err(BadCheckpoint::Version {
            path: path.to_owned(),
            version,
        }),
        _ => Err(damaged()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_state_is_replaced_as_a_whole() {
        let folder = tempfile::tempdir().unwrap();
        let checkpoint = Checkpoint::new(folder.path(), "receiver_a");
        assert_eq!(checkpoint.load().unwrap(), None);
        for state in [&b"one"[..], b"", b"two\nlines\n"] {
            checkpoint.store(state).unwrap();
            assert_eq!(checkpoint.load().unwrap().unwrap(), state);
        }
        // Killed while it wrote the next one.
        fs::write(&checkpoint.unfinished, "profcol check").unwrap();
        assert_eq!(checkpoint.load().unwrap().unwrap(), b"two\nlines\n");
        checkpoint.store(b"three").unwrap();
        assert_eq!(checkpoint.load().unwrap().unwrap(), b"three");
        let names = fs::read_dir(folder.path()).unwrap();
        assert_eq!(names.count(), 1);
    }

    #[test]
    fn a_damaged_byte_and_a_torn_file_are_noticed() {
        let folder = tempfile::tempdir().unwrap();
        let checkpoint = Checkpoint::new(folder.path(), "receiver_a");
        checkpoint.store(b"{\"state\": 1}").unwrap();
        let whole = fs::read(checkpoint.path()).unwrap();
        for at in 0..whole.len() {
            let mut damaged = whole.clone();
            damaged[at] ^= 1;
            fs::write(checkpoint.path(), damaged).unwrap();
            assert!(checkpoint.load().is_err(), "byte {at}");
            fs::write(checkpoint.path(), &whole[..at]).unwrap();
            assert!(checkpoint.load().is_err(), "torn at {at}");
        }
        fs::write(checkpoint.path(), &whole).unwrap();
        assert!(checkpoint.load().unwrap().is_some());
    }

    #[test]
    fn the_format_of_another_version_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let checkpoint = Checkpoint::new(folder.path(), "receiver_a");
        fs::write(checkpoint.path(), "profcol checkpoint 2 0123\n{}").unwrap();
        let refused = checkpoint.load().unwrap_err().to_string();
        let expected = "receiver_a.checkpoint has format version 2, of another profcol";
        assert!(refused.ends_with(expected), "{refused}");
    }

    #[test]
    fn a_state_that_cannot_be_stored_leaves_the_one_before() {
        let folder = tempfile::tempdir().unwrap();
        let checkpoint = Checkpoint::new(folder.path(), "receiver_a");
        checkpoint.store(b"one").unwrap();
        // A directory is in the way.
        fs::create_dir(&checkpoint.unfinished).unwrap();
        assert!(checkpoint.store(b"two").is_err());
        assert_eq!(checkpoint.load().unwrap().unwrap(), b"one");
    }
}
