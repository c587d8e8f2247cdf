//! Secrets that stand in files, which may change while we run.
//!
//! Nobody watches the file: whoever needs the content asks for it, and at most once a second the file
//! is looked at then. An idle agent is not woken up for it.

use std::fmt;
use std::fs::{self, File, Metadata};
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How old what is known of the file may be.
const MAX_AGE: Duration = Duration::from_secs(1);

/// More than this is no file of secrets.
const MAX_BYTES: u64 = 1 << 20;

pub struct WatchedFile<T> {
    path: PathBuf,
    parse: fn(&str) -> Result<T, String>,
    state: Mutex<State<T>>,
}

struct State<T> {
    content: Arc<T>,
    /// Of the file that was read last, also where it could not be used.
    stamp: Option<Stamp>,
    checked: Instant,
}

/// Differs when the file was changed or another was put in its place.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Stamp {
    device: u64,
    inode: u64,
    length: u64,
    modified: (i64, i64),
}

#[derive(Debug, thiserror::Error)]
#[error("failed to read {}: {reason}", path.display())]
pub struct FileError {
    path: PathBuf,
    reason: String,
}

impl<T> WatchedFile<T> {
    pub fn open(
        path: impl Into<PathBuf>,
        parse: fn(&str) -> Result<T, String>,
    ) -> Result<Self, FileError> {
        let path = path.into();
        let stamp = stamp(&path).ok();
        let content = read(&path, parse).map_err(|reason| FileError {
            path: path.clone(),
            reason,
        })?;
        let state = State {
            content: Arc::new(content),
            stamp,
            checked: Instant::now(),
        };
        Ok(Self {
            path,
            parse,
            state: Mutex::new(state),
        })
    }

    /// What the file holds. While it cannot be read, what it held before.
    pub fn current(&self) -> Arc<T> {
        self.at(Instant::now())
    }

    pub(crate) fn at(&self, now: Instant) -> Arc<T> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if now.saturating_duration_since(state.checked) >= MAX_AGE {
            state.checked = now;
            self.refresh(&mut state);
        }
        Arc::clone(&state.content)
    }

    fn refresh(&self, state: &mut State<T>) {
        let stamp = stamp(&self.path).ok();
        if stamp == state.stamp {
            return;
        }
        state.stamp = stamp;
        match read(&self.path, self.parse) {
            Ok(content) => {
                tracing::info!(path = %self.path.display(), "File changed; reloaded it.");
                state.content = Arc::new(content);
            }
            Err(error) => {
                tracing::error!(path = %self.path.display(), error, "The file has changed and cannot be read. Its former content stays in use.");
            }
        }
    }
}

impl<T> fmt::Debug for WatchedFile<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "content of {}", self.path.display())
    }
}

fn stamp(path: &Path) -> io::Result<Stamp> {
    fs::metadata(path).map(|metadata: Metadata| Stamp {
        device: metadata.dev(),
        inode: metadata.ino(),
        length: metadata.len(),
        modified: (metadata.mtime(), metadata.mtime_nsec()),
    })
}

fn read<T>(path: &Path, parse: fn(&str) -> Result<T, String>) -> Result<T, String> {
    let mut text = String::new();
    let read = File::open(path).and_then(|file| file.take(MAX_BYTES + 1).read_to_string(&mut text));
    let length = read.map_err(|error| error.to_string())?;
    if length as u64 > MAX_BYTES {
        return Err(format!("it is larger than {MAX_BYTES} bytes"));
    }
    parse(&text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn number(text: &str) -> Result<u32, String> {
        text.trim()
            .parse()
            .map_err(|_| "it holds no number".to_owned())
    }

    #[test]
    fn is_read_again_when_it_has_changed_and_keeps_what_it_had_while_it_cannot_be_read() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("number");
        fs::write(&path, "1").unwrap();
        let file = WatchedFile::open(&path, number).unwrap();
        let mut now = Instant::now();
        let mut after_a_second = || {
            now += MAX_AGE;
            *file.at(now)
        };
        assert_eq!(after_a_second(), 1);
        fs::write(&path, "22").unwrap();
        assert_eq!(after_a_second(), 22);
        fs::write(&path, "no number").unwrap();
        assert_eq!(after_a_second(), 22);
        fs::remove_file(&path).unwrap();
        assert_eq!(after_a_second(), 22);
        fs::write(&path, "333").unwrap();
        assert_eq!(after_a_second(), 333);
    }

    #[test]
    fn is_not_looked_at_more_than_once_a_second() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("number");
        fs::write(&path, "1").unwrap();
        let file = WatchedFile::open(&path, number).unwrap();
        let opened = file.state.lock().unwrap().checked;
        fs::write(&path, "22").unwrap();
        assert_eq!(*file.at(opened + MAX_AGE / 2), 1);
        assert_eq!(*file.at(opened + MAX_AGE), 22);
    }

    #[test]
    fn says_what_is_wrong_with_a_file() {
        let directory = tempfile::tempdir().unwrap();
        let check = |content: Option<&[u8]>, expected: &str| {
            let path = directory.path().join("number");
            let _ = fs::remove_file(&path);
            if let Some(content) = content {
                fs::write(&path, content).unwrap();
            }
            let error = WatchedFile::open(&path, number).unwrap_err().to_string();
            assert!(error.ends_with(expected), "{error}");
        };
        check(None, "number: No such file or directory (os error 2)");
        check(Some(b"x"), "number: it holds no number");
        check(Some(&[0xff]), "number: stream did not contain valid UTF-8");
        check(
            Some(&[b' '; (1 << 20) + 1]),
            "number: it is larger than 1048576 bytes",
        );
    }
}
