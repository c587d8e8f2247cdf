//! Reads profiles from Parca Agent's offline files.
//!
//! ```text
//! folder, oldest first ──► Contents: a batch at a time ──► Delivery ──► pipelines
//!        ▲                                                    │
//!        └──── deleted, moved or kept when all is delivered ◄─┘ Ledger, Progress
//! ```

mod config;
mod delivery;
mod file;
mod folder;
#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};
use std::time::Duration;

use async_trait::async_trait;
use profcol_component::{
    BuildContext, BuildError, Factory, IntCounter, Output, Receiver, RunError, Stability,
    StartError, Stop,
};
use tokio::task::spawn_blocking;

pub use self::config::PadataConfig;
use self::delivery::{Delivery, Ledger};
use self::file::{Contents, Next};
use self::folder::{Delivered, End, Progress};

/// How long after a stop it is waited for what is on its way.
const GRACE: Duration = Duration::from_secs(5);
/// How long to wait before what was not delivered is tried again.
const PAUSE: Duration = Duration::from_secs(5);

pub struct Padata {
    config: PadataConfig,
    counters: Counters,
}

#[derive(Clone)]
struct Counters {
    delivered_files: IntCounter,
    damaged: IntCounter,
    refused: IntCounter,
}

impl Factory for Padata {
    const NAME: &'static str = "padata";
    const STABILITY: Stability = Stability::Alpha;
    type Config = PadataConfig;
    type Component = dyn Receiver;

    fn build(
        config: &PadataConfig,
        context: &BuildContext,
    ) -> Result<Box<dyn Receiver>, BuildError> {
        let id = context.id.to_string();
        let counter = |name: &str, help: &str| {
            let name = format!("otelcol_receiver_padata_{name}");
            context.meter.counter(&name, help, &[("receiver", &id)])
        };
        Ok(Box::new(Self {
            config: config.clone(),
            counters: Counters {
                delivered_files: counter(
                    "delivered_files",
                    "Files that were delivered as a whole.",
                ),
                damaged: counter(
                    "damaged_batches",
                    "Batches, or ends of files, that could not be read.",
                ),
                refused: counter("refused_batches", "Batches that were refused for ever."),
            },
        }))
    }
}

#[async_trait]
impl Receiver for Padata {
    async fn start(&mut self) -> Result<(), StartError> {
        let folder = PathBuf::from(&self.config.storage_path);
        let found = folder::files(&folder);
        let found = found
            .map_err(|error| StartError(format!("storage_path {}: {error}", folder.display())))?;
        tracing::info!(folder = %folder.display(), files = found.len(), "Reading recorded profiles.");
        Ok(())
    }

    async fn run(self: Box<Self>, output: Output, stop: Stop) -> Result<(), RunError> {
        let delivery = Delivery::new(
            output.for_transport("file"),
            stop.clone(),
            self.config.max_in_flight,
        );
        let folder = PathBuf::from(&self.config.storage_path);
        while !stop.is_cancelled() {
            let listed = in_background({
                let folder = folder.clone();
                move || folder::files(&folder)
            });
            match listed.await? {
                Ok(files) => {
                    for file in files {
                        self.deliver(&delivery, &file, &stop).await?;
                    }
                }
                Err(error) => {
                    tracing::error!(folder = %folder.display(), %error, "The folder cannot be read.");
                }
            }
            if !self.config.follow {
                break;
            }
            tokio::select! {
                () = tokio::time::sleep(self.config.poll_interval.into()) => {}
                () = stop.cancelled() => break,
            }
        }
        Ok(())
    }
}

impl Padata {
    /// Delivers one file, however often that has to be tried.
    async fn deliver(&self, delivery: &Delivery, path: &Path, stop: &Stop) -> Result<(), RunError> {
        let progress = Progress::of(path);
        let mut ledger = match progress.read() {
            Delivered::Everything => return Ok(()),
            Delivered::Batches { settled, refused } => Ledger::new(settled, refused),
        };
        let mut is_damaged = None;
        while !stop.is_cancelled() {
            let Some(damaged) = self.pass(delivery, path, &mut ledger, &progress).await? else {
                return Ok(());
            };
            if is_damaged.replace(damaged).is_none() {
                self.counters.damaged.inc_by(damaged);
            }
            if stop.is_cancelled() {
                let settling = tokio::time::timeout(GRACE, delivery.settle());
                let _ = settling.await;
            } else {
                delivery.settle().await;
            }
            if ledger.update() {
                note(&progress, &ledger, path);
            }
            if ledger.undelivered == 0 && !stop.is_cancelled() {
                self.counters.refused.inc_by(ledger.refused());
                return self.put_away(path, damaged > 0, ledger.refused() > 0).await;
            }
            ledger.undelivered = 0;
            tokio::select! {
                () = tokio::time::sleep(PAUSE) => {}
                () = stop.cancelled() => {}
            }
        }
        Ok(())
    }

    /// Goes through the file once and delivers what is not yet; how many batches could not be read.
    /// None where somebody else has the file.
    async fn pass(
        &self,
        delivery: &Delivery,
        path: &Path,
        ledger: &mut Ledger,
        progress: &Progress,
    ) -> Result<Option<u64>, RunError> {
        let opening = {
            let (path, longest) = (path.to_owned(), self.config.max_record_mib);
            in_background(move || {
                let opened = folder::open(&path)
                    .map_err(|error| profcol_parca::padata::BadFile::Io { at: 0, error })?;
                let contents = opened.map(|file| Contents::open(&path, file, longest));
                contents.transpose()
            })
        };
        let mut contents = match opening.await? {
            Ok(Some(contents)) => contents,
            Ok(None) => return Ok(None),
            Err(error) => {
                tracing::error!(path = %path.display(), %error, "A file cannot be read.");
                return Ok(Some(1));
            }
        };
        let mut damaged = 0;
        loop {
            let next;
            (contents, next) = in_background(move || {
                let next = contents.next();
                (contents, next)
            })
            .await?;
            match next {
                Ok(Next::Batch { number, .. }) if ledger.is_settled(number) => {}
                Ok(Next::Batch { number, profiles }) => {
                    delivery.deliver(ledger, number, profiles).await;
                }
                Ok(Next::Bad { number, at, reason }) => {
                    damaged += 1;
                    ledger.settle(number);
                    tracing::error!(path = %path.display(), offset = at, %reason, "Skipping a batch that cannot be read.");
                }
                Ok(Next::End) => return Ok(Some(damaged)),
                Err(error) => {
                    tracing::error!(path = %path.display(), %error, "The rest of a file cannot be read.");
                    return Ok(Some(damaged + 1));
                }
            }
            if ledger.update() {
                note(progress, ledger, path);
            }
        }
    }

    async fn put_away(
        &self,
        path: &Path,
        is_damaged: bool,
        is_refused: bool,
    ) -> Result<(), RunError> {
        let end = match (is_damaged, is_refused) {
            (false, false) => End::Delivered,
            (_, true) => End::Refused,
            (true, false) => End::Damaged,
        };
        let (file, after) = (path.to_owned(), self.config.after);
        let move_to = PathBuf::from(&self.config.move_to);
        let putting = in_background(move || folder::put_away(&file, end, after, &move_to));
        match putting.await? {
            Ok(()) if end == End::Delivered => self.counters.delivered_files.inc(),
            Ok(()) => {
                tracing::warn!(path = %path.display(), ?end, "Not everything in a file was delivered: it is kept under another name.");
            }
            Err(error) => {
                tracing::error!(path = %path.display(), %error, "A file that was delivered cannot be put away: it may be delivered again.");
            }
        }
        Ok(())
    }
}

fn note(progress: &Progress, ledger: &Ledger, path: &Path) {
    if let Err(error) = progress.write(&ledger.delivered()) {
        tracing::warn!(path = %path.display(), %error, "How far a file was delivered cannot be noted: after a crash all of it comes again.");
    }
}

async fn in_background<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, RunError> {
    let working = spawn_blocking(work).await;
    working.map_err(|error| RunError(format!("reading files ended early: {error}")))
}
