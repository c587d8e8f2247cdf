//! Reloads TLS configurations when their files change.
//!
//! There is no background watcher: on a new connection, at most once per interval, the files' times, sizes and inodes
//! are compared, and the files are read if they differ. If that fails, the old configuration stays in use, with a
//! warning.

use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tracing::{info, warn};

use super::TlsError;

type Stamp = Vec<Option<(i64, i64, u64, u64)>>;
type Load<T> = Box<dyn Fn() -> Result<T, TlsError> + Send + Sync>;

/// A value loaded from files, reloaded when they change.
pub(super) struct Reloading<T> {
    files: Vec<PathBuf>,
    /// Zero disables reloading.
    interval: Duration,
    load: Load<T>,
    state: Mutex<State<T>>,
}

struct State<T> {
    value: Arc<T>,
    stamp: Stamp,
    looked: Instant,
}

impl<T> Reloading<T> {
    pub fn new(files: Vec<PathBuf>, interval: Duration, load: Load<T>) -> Result<Self, TlsError> {
        let stamp = stamp(&files);
        let value = Arc::new(load()?);
        let state = Mutex::new(State {
            value,
            stamp,
            looked: Instant::now(),
        });
        Ok(Reloading {
            files,
            interval,
            load,
            state,
        })
    }

    /// The current value.
    pub fn get(&self) -> Arc<T> {
        let mut state = self.state.lock();
        if !self.files.is_empty()
            && !self.interval.is_zero()
            && state.looked.elapsed() >= self.interval
        {
            state.looked = Instant::now();
            let stamp = stamp(&self.files);
            if stamp != state.stamp {
                match (self.load)() {
                    Ok(value) => {
                        let files: Vec<_> = self
                            .files
                            .iter()
                            .map(|it| it.display().to_string())
                            .collect();
                        info!(files = %files.join(", "), "Reloaded changed TLS files.");
                        state.value = Arc::new(value);
                        state.stamp = stamp;
                    }
                    // Keep the old stamp, so that the next check retries: two files are not replaced atomically.
                    Err(error) => {
                        warn!(%error, "Failed to reload changed TLS files; keeping the previous ones.")
                    }
                }
            }
        }
        state.value.clone()
    }
}

impl<T> std::fmt::Debug for Reloading<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Reloading")
            .field("files", &self.files)
            .field("interval", &self.interval)
            .finish_non_exhaustive()
    }
}

fn stamp(files: &[PathBuf]) -> Stamp {
    let of = |file| {
        let meta = std::fs::metadata(file).ok()?;
        Some((meta.mtime(), meta.mtime_nsec(), meta.size(), meta.ino()))
    };
    files.iter().map(of).collect()
}
