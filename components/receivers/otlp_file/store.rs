//! Stores the positions, so that the next run continues at them.

use std::convert::Infallible;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use profcol_component::IntCounter;
use profcol_storage::Checkpoint;
use tokio::task::spawn_blocking;

use super::positions::Positions;

/// How often to store positions that have changed.
const INTERVAL: Duration = Duration::from_secs(1);

/// Maximum number of files whose positions are stored.
const MAX_FILES: usize = 10_000;

pub(super) struct Store {
    positions: Arc<Mutex<Positions>>,
    /// One write at a time: the last one after a stop waits for one that was abandoned.
    checkpoint: Option<Arc<Mutex<Checkpoint>>>,
    forgotten: IntCounter,
    /// Why the last write failed.
    error: Mutex<Option<String>>,
}

impl Store {
    pub(super) fn new(
        positions: Arc<Mutex<Positions>>,
        checkpoint: Option<Checkpoint>,
        forgotten: IntCounter,
    ) -> Self {
        Self {
            positions,
            checkpoint: checkpoint.map(|checkpoint| Arc::new(Mutex::new(checkpoint))),
            forgotten,
            error: Mutex::default(),
        }
    }

    /// Loads the positions of an earlier run. Returns whether there was one.
    pub(super) fn load(&self) -> bool {
        let Some(checkpoint) = &self.checkpoint else {
            return false;
        };
        let checkpoint = checkpoint.lock();
        let loaded = checkpoint.load().map_err(|error| error.to_string());
        let decoded = loaded.and_then(|stored| {
            let positions = stored.map(|stored| Positions::decode(&stored));
            let failed =
                |error: serde_json::Error| format!("{}: {error}", checkpoint.path().display());
            positions.transpose().map_err(failed)
        });
        match decoded {
            Ok(None) => false,
            Ok(Some(stored)) => {
                tracing::info!(
                    files = stored.len(),
                    "Continuing at stored positions; `start_at` is ignored."
                );
                *self.positions.lock() = stored;
                true
            }
            Err(error) => {
                tracing::error!(%error, "Stored positions are lost; reading all files from the beginning, so records may be delivered twice.");
                true
            }
        }
    }

    /// Stores the positions now and then. Never ends.
    pub(super) async fn run(&self) -> Infallible {
        loop {
            tokio::time::sleep(INTERVAL).await;
            if self.positions.lock().has_changed() {
                self.store().await;
            }
        }
    }

    /// Stores the positions, also if there are none: that there was a run is stored with them.
    pub(super) async fn store(&self) {
        let Some(checkpoint) = self.checkpoint.clone() else {
            return;
        };
        let forgotten = self.positions.lock().limit(MAX_FILES);
        if forgotten > 0 {
            self.forgotten.inc_by(forgotten as u64);
            tracing::warn!(
                files = forgotten,
                max_files = MAX_FILES,
                "Dropped the positions of the files read longest ago: too many files. A restart would read them again."
            );
        }
        let positions = Arc::clone(&self.positions);
        let storing = spawn_blocking(move || {
            let checkpoint = checkpoint.lock();
            let encoded = positions.lock().encode()?;
            let stored = checkpoint.store(&encoded);
            if stored.is_err() {
                positions.lock().not_stored();
            }
            stored
        });
        let stored = storing
            .await
            .unwrap_or_else(|error| Err(io::Error::other(error)));
        let error = stored
            .err()
            .map(|error| format!("failed to store positions: {error}"));
        let mut before = self.error.lock();
        match (&error, &*before) {
            (Some(error), None) => {
                tracing::error!(%error, "Failed to store positions; retrying. A restart would deliver records twice.");
            }
            (None, Some(_)) => tracing::info!("Positions are stored again."),
            _ => {}
        }
        *before = error;
    }

    /// Why the positions are not stored, if so.
    pub(super) fn error(&self) -> Option<String> {
        self.error.lock().clone()
    }
}
