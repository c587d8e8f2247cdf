//! Follows one runtime: from when a container is first met that nobody knows.

use std::time::Duration;

use profcol_component::{IntCounter, Stop};
use tokio::sync::watch;
use tokio::time::{Instant, sleep};

use super::described::Wanted;
use super::directory::{Directory, Source};
use super::runtime::{Change, Runtime, Socket};

/// After a failure it is asked again at the earliest after this, and doubled with each further one.
const INITIAL_BACKOFF: Duration = Duration::from_millis(500);
const MAX_BACKOFF: Duration = Duration::from_secs(60);
/// While all is well, everything is asked for again at most so often: for runtimes that do not tell
/// of changes, and for what slipped between two of them.
const LIST_AGAIN: Duration = Duration::from_secs(10);

pub(super) struct Watch<'a> {
    pub socket: &'a Socket,
    pub source: Source,
    pub directory: &'a Directory,
    pub wanted: &'a Wanted,
    pub failed: &'a IntCounter,
}

impl Watch<'_> {
    /// Until `stop`. Nobody is asked before there is something to ask for.
    pub async fn run(&self, mut questions: watch::Receiver<bool>, stop: &Stop) {
        tokio::select! {
            () = stop.cancelled() => {}
            () = self.follow_again_and_again(&mut questions) => {}
        }
    }

    async fn follow_again_and_again(&self, questions: &mut watch::Receiver<bool>) {
        let mut wait = INITIAL_BACKOFF;
        let mut said = String::new();
        while questions.changed().await.is_ok() {
            let mut was_good = false;
            let Err(error) = self.follow(questions, &mut was_good).await else {
                return;
            };
            if was_good {
                (wait, said) = (INITIAL_BACKOFF, String::new());
            }
            let path = self.socket.path.as_str();
            // Which runtimes there are is to be found out, hence no news.
            if std::path::Path::new(path).exists() {
                self.failed.inc();
                if said != error {
                    tracing::warn!(
                        socket = path,
                        error,
                        "failed to query the container runtime; retrying"
                    );
                    said = error;
                }
            }
            sleep(wait).await;
            wait = (wait * 2).min(MAX_BACKOFF);
        }
    }

    /// Until it fails, or nobody asks any more.
    async fn follow(
        &self,
        questions: &mut watch::Receiver<bool>,
        was_good: &mut bool,
    ) -> Result<(), String> {
        let runtime = self.socket.open()?;
        // First, so that nothing happens between the list and them.
        let mut events = runtime.events().await?;
        self.list(&runtime).await?;
        *was_good = true;
        tracing::debug!(
            socket = self.socket.path,
            "connected to the container runtime"
        );
        let mut listed = Instant::now();
        loop {
            tokio::select! {
                change = events.next() => self.take(&runtime, change?).await?,
                asked = questions.changed() => match asked {
                    Err(_) => return Ok(()),
                    Ok(()) if listed.elapsed() >= LIST_AGAIN => {
                        self.list(&runtime).await?;
                        listed = Instant::now();
                    }
                    Ok(()) => {}
                }
            }
        }
    }

    async fn list(&self, runtime: &Runtime) -> Result<(), String> {
        let containers = runtime.list(self.wanted).await?;
        self.directory.replace(self.source, containers);
        Ok(())
    }

    async fn take(&self, runtime: &Runtime, change: Change) -> Result<(), String> {
        match change {
            Change::Look(name) => {
                if let Some(attributes) = runtime.container(&name, self.wanted).await? {
                    self.directory.add(self.source, name.key(), attributes);
                }
            }
            Change::End(name) => self.directory.end(self.source, &name.key()),
        }
        Ok(())
    }
}
