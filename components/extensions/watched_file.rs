//! Secrets in files, which may change at runtime.
//!
//! The file is not watched: when its content is needed, it is checked for changes, at most once a
//! second. So an idle agent is not woken up.

use std::error::Error;
use std::fmt;
use std::fs::{self, File, Metadata};
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use profcol_component::Check;

/// Maximum time between two checks of the file.
const MAX_AGE: Duration = Duration::from_secs(1);

/// Files of secrets are smaller.
const MAX_BYTES: u64 = 1 << 20;

pub struct WatchedFile<T> {
    path: PathBuf,
    parse: fn(&str) -> Result<T, Cause>,
    state: Mutex<State<T>>,
}

struct State<T> {
    content: Arc<T>,
    /// The stamp of the file that was read last, even if its content was unusable.
    stamp: Option<Stamp>,
    checked: Instant,
}

/// Differs if the file was changed or replaced.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Stamp {
    device: u64,
    inode: u64,
    length: u64,
    modified: (i64, i64),
}

#[derive(Debug, thiserror::Error)]
#[error("failed to read {}: {error}", path.display())]
pub struct FileError {
    path: PathBuf,
    #[source]
    error: Cause,
}

/// An error of the file, or of what parses its content.
pub type Cause = Box<dyn Error + Send + Sync>;

/// Whether a secret can be read, and who else can read it.
pub fn check(path: &str, opened: Result<(), FileError>) -> Check {
    const NAME: &str = "credentials";
    if let Err(error) = opened {
        let fix = format!(
            "write the credentials to {path}, and let the user of profcol read it: chown root:profcol {path}; chmod 640 {path}"
        );
        return Check::new(NAME, error.to_string()).fail("profcol does not start", fix);
    }
    let check = Check::new(NAME, format!("{path} is readable"));
    match fs::metadata(path) {
        Ok(metadata) if metadata.mode() & 0o004 != 0 => check.warn(
            "every user of this host can read the credentials",
            format!("chmod 640 {path}"),
        ),
        _ => check,
    }
}

impl<T> WatchedFile<T> {
    pub fn open(
        path: impl Into<PathBuf>,
        parse: fn(&str) -> Result<T, Cause>,
    ) -> Result<Self, FileError> {
        let path = path.into();
        let stamp = stamp(&path).ok();
        let content = read(&path, parse).map_err(|error| FileError {
            path: path.clone(),
            error,
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

    /// The content of the file, or the previous content while it is unreadable.
    pub fn current(&self) -> Arc<T> {
        self.at(Instant::now())
    }

    pub(crate) fn at(&self, now: Instant) -> Arc<T> {
        let mut state = self.state.lock();
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
                tracing::error!(path = %self.path.display(), error, "Failed to reload a changed file; keeping its previous content.");
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

fn read<T>(path: &Path, parse: fn(&str) -> Result<T, Cause>) -> Result<T, Cause> {
    let mut text = String::new();
    let read = File::open(path).and_then(|file| file.take(MAX_BYTES + 1).read_to_string(&mut text));
    let length = read?;
    if length as u64 > MAX_BYTES {
        return Err(format!("it is larger than {MAX_BYTES} bytes").into());
    }
    parse(&text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn number(text: &str) -> Result<u32, Cause> {
        text.trim().parse().map_err(|_| "it holds no number".into())
    }

    #[test]
    fn reloads_on_change_and_keeps_the_previous_content_while_unreadable() {
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
    fn checks_the_file_at_most_once_a_second() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("number");
        fs::write(&path, "1").unwrap();
        let file = WatchedFile::open(&path, number).unwrap();
        let opened = file.state.lock().checked;
        fs::write(&path, "22").unwrap();
        assert_eq!(*file.at(opened + MAX_AGE / 2), 1);
        assert_eq!(*file.at(opened + MAX_AGE), 22);
    }

    #[test]
    fn reports_why_a_file_is_unusable() {
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
