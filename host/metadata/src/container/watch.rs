//! Follows the containers of a runtime, starting with the first profile of an unknown container.

use std::time::Duration;

use profcol_component::{IntCounter, Stop};
use tokio::sync::watch;
use tokio::time::{Instant, sleep};

use super::api::{Change, RuntimeError};
use super::description::LabelFilter;
use super::directory::{Directory, Source};
use super::runtime::{Runtime, Socket};

/// Doubled with each consecutive failure.
const INITIAL_BACKOFF: Duration = Duration::from_millis(500);
const MAX_BACKOFF: Duration = Duration::from_secs(60);
/// Minimum interval of full container lists: for runtimes without events, and for containers that came and went between
/// two events.
const MIN_LIST_INTERVAL: Duration = Duration::from_secs(10);

pub struct Watch<'a> {
    pub socket: &'a Socket,
    pub source: Source,
    pub directory: &'a Directory,
    pub labels: &'a LabelFilter,
    pub failed: &'a IntCounter,
}

impl Watch<'_> {
    /// Runs until `stop`. Does not query the runtime before the first request.
    pub async fn run(&self, mut requests: watch::Receiver<bool>, stop: &Stop) {
        tokio::select! {
            () = stop.cancelled() => {}
            () = self.follow_with_retries(&mut requests) => {}
        }
    }

    async fn follow_with_retries(&self, requests: &mut watch::Receiver<bool>) {
        let mut wait = INITIAL_BACKOFF;
        let mut logged = String::new();
        while requests.changed().await.is_ok() {
            let mut has_connected = false;
            let Err(error) = self.follow(requests, &mut has_connected).await else {
                return;
            };
            if has_connected {
                (wait, logged) = (INITIAL_BACKOFF, String::new());
            }
            self.directory.fail(self.source);
            let path = self.socket.path.as_str();
            // The default configuration lists sockets of runtimes that may not be installed.
            if std::path::Path::new(path).exists() {
                self.failed.inc();
                let error = error.to_string();
                if logged != error {
                    tracing::warn!(
                        socket = path,
                        error,
                        "Failed to query the container runtime; retrying."
                    );
                    logged = error;
                }
            }
            sleep(wait).await;
            wait = (wait * 2).min(MAX_BACKOFF);
        }
    }

    /// Returns on failure, or when the request channel is closed.
    async fn follow(
        &self,
        requests: &mut watch::Receiver<bool>,
        has_connected: &mut bool,
    ) -> Result<(), RuntimeError> {
        let runtime = self.socket.open()?;
        // Subscribe before listing, so that no change is missed in between.
        let mut events = runtime.events().await?;
        self.list(&runtime).await?;
        *has_connected = true;
        tracing::debug!(
            socket = self.socket.path,
            "connected to the container runtime"
        );
        let mut listed = Instant::now();
        loop {
            tokio::select! {
                change = events.next() => self.take(&runtime, change?).await?,
                request = requests.changed() => match request {
                    Err(_) => return Ok(()),
                    Ok(()) if listed.elapsed() >= MIN_LIST_INTERVAL => {
                        self.list(&runtime).await?;
                        listed = Instant::now();
                    }
                    Ok(()) => {}
                }
            }
        }
    }

    async fn list(&self, runtime: &Runtime) -> Result<(), RuntimeError> {
        let containers = runtime.list(self.labels).await?;
        self.directory.replace(self.source, containers);
        Ok(())
    }

    async fn take(&self, runtime: &Runtime, change: Change) -> Result<(), RuntimeError> {
        match change {
            Change::Changed(name) => {
                if let Some(attributes) = runtime.container(&name, self.labels).await? {
                    self.directory.add(self.source, name.key(), attributes);
                }
            }
            Change::Removed(name) => self.directory.end(self.source, &name.key()),
        }
        Ok(())
    }
}
