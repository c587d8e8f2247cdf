//! Reads profiles from Parca Agent's offline files.
//!
//! ```text
//! directory, oldest first ──► Contents: a batch at a time ──► Delivery ──► pipelines
//!        ▲                                                    │
//!        └──── deleted, moved or kept once delivered ◄────────┘ Ledger, Progress
//! ```

mod check;
mod config;
mod delivery;
mod finish;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use profcol_component::{
    BuildContext, BuildError, Capabilities, Check, ComponentStatus, Factory, IntCounter, Output,
    Receiver, RunError, Stability, StartError, Status, Stop,
};
use profcol_padata::{Delivered, Next, Owned, Progress};
use profcol_parca::padata::BadFile;
use tokio::task::spawn_blocking;

pub use self::config::PadataConfig;
use self::delivery::{Delivery, Ledger, Totals};
use self::finish::{End, finish_file};
use crate::shared::WhenUndelivered;

/// How long to wait for batches in flight after a stop.
const SHUTDOWN_GRACE: Duration = Duration::from_secs(5);
/// Delay before undelivered batches are retried.
const RETRY_DELAY: Duration = Duration::from_secs(5);

pub struct Padata {
    config: PadataConfig,
    counters: Counters,
    /// Delivered files that could not be deleted or moved.
    not_finalized: HashMap<PathBuf, End>,
    totals: Totals,
    status: ComponentStatus,
}

/// Number of files in a directory, and their outcomes.
#[derive(Default)]
struct Files {
    found: usize,
    delivered: usize,
    skipped: usize,
}

/// The outcome of a file.
enum FileOutcome {
    /// Delivered, and deleted, moved or kept as configured.
    Delivered,
    Left,
    /// Delivered before, or in use by another process.
    Skipped,
}

#[derive(Clone)]
struct Counters {
    delivered_batches: IntCounter,
    delivered_files: IntCounter,
    damaged: IntCounter,
    refused: IntCounter,
}

impl Factory for Padata {
    const NAME: &'static str = "padata";
    const STABILITY: Stability = Stability::Alpha;
    /// Two instances would read the same recordings.
    const IS_EXCLUSIVE: bool = true;
    type Config = PadataConfig;
    type Component = dyn Receiver;

    fn capabilities(_: &PadataConfig) -> Capabilities {
        // /proc of a recorder that does not lock its files says whether it still has one open.
        Capabilities::SYS_PTRACE
    }

    fn writes(config: &PadataConfig) -> Vec<PathBuf> {
        let moved = (!config.move_to.is_empty()).then(|| PathBuf::from(&config.move_to));
        std::iter::once(PathBuf::from(&config.storage_path))
            .chain(moved)
            .collect()
    }

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
            not_finalized: HashMap::new(),
            totals: Totals::default(),
            status: context.status.clone(),
            counters: Counters {
                delivered_batches: counter("delivered_batches", "Delivered batches."),
                delivered_files: counter("delivered_files", "Fully delivered files."),
                damaged: counter(
                    "damaged_batches",
                    "Unreadable batches, and files with an unreadable header.",
                ),
                refused: counter(
                    "refused_profile_samples",
                    "Samples permanently refused by a destination.",
                ),
            },
        }))
    }
}

#[async_trait]
impl Receiver for Padata {
    async fn start(&mut self) -> Result<(), StartError> {
        let directory = PathBuf::from(&self.config.storage_path);
        let found = profcol_padata::files(&directory);
        let found = found.map_err(|error| {
            StartError::new(format!("storage_path {}: {error}", directory.display()))
        })?;
        tracing::info!(directory = %directory.display(), files = found.len(), "Reading recorded profiles.");
        Ok(())
    }

    async fn check(&mut self) -> Vec<Check> {
        check::check(&self.config).await
    }

    async fn run(mut self: Box<Self>, output: Output, stop: Stop) -> Result<(), RunError> {
        let delivery = Delivery::new(
            output.for_transport("file"),
            stop.clone(),
            self.config.max_in_flight,
        );
        if !self.config.follow {
            let mut files = Files::default();
            let delivered = self.deliver_all(&delivery, &mut files).await;
            self.log_totals(&files);
            return delivered.and_then(|()| files.verdict(&delivery));
        }
        while !stop.is_cancelled() {
            self.deliver_all(&delivery, &mut Files::default()).await?;
            tokio::select! {
                () = tokio::time::sleep(self.config.poll_interval.into()) => {}
                () = stop.cancelled() => {}
            }
        }
        Ok(())
    }
}

impl Padata {
    fn leaves(&self) -> bool {
        self.config.when_undelivered == WhenUndelivered::Leave
    }

    /// Delivers the existing files.
    async fn deliver_all(
        &mut self,
        delivery: &Delivery,
        files: &mut Files,
    ) -> Result<(), RunError> {
        let directory = PathBuf::from(&self.config.storage_path);
        let listing = in_background({
            let directory = directory.clone();
            move || {
                if let Err(error) = profcol_padata::remove_orphans(&directory) {
                    tracing::debug!(directory = %directory.display(), %error, "Failed to remove the progress of deleted files.");
                }
                profcol_padata::files(&directory)
            }
        });
        let paths = match listing.await? {
            Ok(paths) => paths,
            Err(error) if self.config.follow => {
                tracing::error!(directory = %directory.display(), %error, "Failed to read the directory.");
                let reason = format!("failed to read {}: {error}", directory.display());
                self.status.set(Status::RecoverableError(reason.into()));
                return Ok(());
            }
            Err(error) => {
                let directory = directory.display();
                return Err(RunError::new(format!(
                    "failed to read {directory}: {error}"
                )));
            }
        };
        self.status.set(Status::Ok);
        self.not_finalized.retain(|path, _| paths.contains(path));
        files.found = paths.len();
        for path in paths {
            if delivery.is_stopped() {
                break;
            }
            match self.deliver(delivery, &path).await? {
                FileOutcome::Delivered => files.delivered += 1,
                FileOutcome::Skipped => files.skipped += 1,
                FileOutcome::Left => {}
            }
        }
        Ok(())
    }

    fn log_totals(&self, files: &Files) {
        let Totals {
            read,
            delivered,
            refused,
        } = self.totals;
        let settled = delivered.samples + refused.samples;
        tracing::info!(
            directory = %self.config.storage_path,
            files = files.found,
            delivered_files = files.delivered,
            skipped_files = files.skipped,
            batches = read.batches,
            delivered_batches = delivered.batches,
            damaged_batches = self.counters.damaged.get(),
            samples = read.samples,
            delivered_samples = delivered.samples,
            refused_samples = refused.samples,
            undelivered_samples = read.samples.saturating_sub(settled),
            "Finished reading recorded profiles."
        );
    }

    /// Delivers one file, with as many attempts as needed.
    async fn deliver(&mut self, delivery: &Delivery, path: &Path) -> Result<FileOutcome, RunError> {
        if let Some(&end) = self.not_finalized.get(path) {
            return self.finish_file(path, end).await;
        }
        let progress = Progress::of(path);
        let mut ledger = match progress.read() {
            Delivered::Everything => return Ok(FileOutcome::Skipped),
            Delivered::Batches { settled, refused } => Ledger::new(settled, refused, self.leaves()),
        };
        let taking = path.to_owned();
        let file = match in_background(move || Owned::take(&taking)).await? {
            Ok(Some(file)) => Arc::new(file),
            Ok(None) => return Ok(FileOutcome::Skipped),
            Err(error) => {
                tracing::error!(path = %path.display(), %error, "Failed to open a file.");
                return Ok(FileOutcome::Left);
            }
        };
        let mut is_first = true;
        loop {
            let read = self.pass(delivery, &file, &mut ledger, &progress).await?;
            if std::mem::take(&mut is_first) {
                self.counters.damaged.inc_by(read.damaged);
            }
            delivery.settle(SHUTDOWN_GRACE).await;
            self.update(&mut ledger, &progress, path);
            let undelivered = ledger.take_undelivered();
            if delivery.is_stopped() || read.is_disk_failing {
                return Ok(FileOutcome::Left);
            }
            if undelivered == 0 {
                if self.has_grown(&file, &read).await? {
                    continue;
                }
                return self.end(path, &read, &ledger).await;
            }
            if self.leaves() {
                return Err(RunError::new(format!(
                    "{} and the files after it are left unchanged: the exporters gave up on {undelivered} batches",
                    path.display()
                )));
            }
            tokio::select! {
                () = tokio::time::sleep(RETRY_DELAY) => {}
                () = delivery.stopped() => return Ok(FileOutcome::Left),
            }
        }
    }

    /// Reads the file once and delivers what is not delivered yet.
    async fn pass(
        &mut self,
        delivery: &Delivery,
        file: &Arc<Owned>,
        ledger: &mut Ledger,
        progress: &Progress,
    ) -> Result<Pass, RunError> {
        let path = file.path();
        let mut read = Pass::default();
        let opening = {
            let (file, longest) = (Arc::clone(file), self.config.max_record_mib);
            in_background(move || file.read(longest))
        };
        let mut contents = match opening.await? {
            Ok(contents) => contents,
            Err(error) => {
                read.failed(path, &error, 1);
                return Ok(read);
            }
        };
        // The file will be left anyway, so reading on is pointless.
        while !(delivery.is_stopped() || self.leaves() && ledger.has_undelivered()) {
            let next;
            (contents, next) = in_background(move || {
                let next = contents.next_batch();
                (contents, next)
            })
            .await?;
            match next {
                Ok(Next::Batch { number, profiles }) => {
                    read.batches += 1;
                    if !ledger.is_settled(number) {
                        ledger.read(number, profiles.sample_count() as u64);
                        delivery.deliver(ledger, number, profiles).await;
                    }
                }
                Ok(Next::Bad {
                    number,
                    at,
                    samples,
                    reason,
                }) => {
                    read.batches += 1;
                    read.damaged += 1;
                    if !ledger.is_settled(number) {
                        delivery.count_failed(samples);
                    }
                    ledger.settle(number);
                    tracing::error!(path = %path.display(), offset = at, samples, %reason, "Skipping an unreadable batch.");
                }
                Ok(Next::End) => break,
                Err(error) => {
                    read.failed(path, &error, contents.unread());
                    break;
                }
            }
            self.update(ledger, progress, path);
        }
        Ok(read)
    }

    fn update(&mut self, ledger: &mut Ledger, progress: &Progress, path: &Path) {
        let is_to_be_noted = ledger.update();
        let totals = ledger.take_totals();
        self.counters
            .delivered_batches
            .inc_by(totals.delivered.batches);
        self.counters.refused.inc_by(totals.refused.samples);
        self.totals += totals;
        if !is_to_be_noted {
            return;
        }
        if let Err(error) = progress.write(&ledger.progress()) {
            tracing::warn!(path = %path.display(), %error, "Failed to store the progress of a file; after a crash all of it is delivered again.");
        }
    }

    /// Whether the file has grown during the delivery: Parca Agent writes without a
    /// lock.
    async fn has_grown(&self, file: &Arc<Owned>, read: &Pass) -> Result<bool, RunError> {
        let (file, longest) = (Arc::clone(file), self.config.max_record_mib);
        let counting = in_background(move || file.reader(longest).map(|reader| reader.count()));
        let count = counting.await?.unwrap_or_default();
        Ok(read.damaged == 0 && u64::from(count) > read.batches)
    }

    async fn end(
        &mut self,
        path: &Path,
        read: &Pass,
        ledger: &Ledger,
    ) -> Result<FileOutcome, RunError> {
        if ledger.refused() > 0 && self.leaves() {
            tracing::error!(path = %path.display(), batches = ledger.refused(), "A destination permanently refused batches of a file; leaving the file.");
            return Ok(FileOutcome::Left);
        }
        let end = match (read.damaged, ledger.refused()) {
            (0, 0) => End::Delivered,
            (_, 0) => End::Damaged,
            _ => End::Refused,
        };
        if end == End::Delivered {
            self.counters.delivered_files.inc();
        }
        self.finish_file(path, end).await
    }

    async fn finish_file(&mut self, path: &Path, end: End) -> Result<FileOutcome, RunError> {
        let (file, after) = (path.to_owned(), self.config.after);
        let move_to = PathBuf::from(&self.config.move_to);
        let putting = in_background(move || finish_file(&file, end, after, &move_to));
        if let Err(error) = putting.await? {
            if self.not_finalized.insert(path.to_owned(), end).is_none() {
                tracing::error!(path = %path.display(), %error, "Failed to delete or move a delivered file; it may be delivered again after a restart.");
            }
            return Ok(FileOutcome::Left);
        }
        self.not_finalized.remove(path);
        if end != End::Delivered {
            tracing::warn!(path = %path.display(), reason = end.name(), "File not fully delivered; renaming it.");
            return Ok(FileOutcome::Left);
        }
        Ok(FileOutcome::Delivered)
    }
}

impl Files {
    /// A stop leaves files behind without an error.
    fn verdict(&self, delivery: &Delivery) -> Result<(), RunError> {
        match self.found - self.delivered - self.skipped {
            0 => Ok(()),
            _ if delivery.is_stopped() => Ok(()),
            left => Err(RunError::new(format!(
                "{left} files were not fully delivered"
            ))),
        }
    }
}

/// The result of one pass over a file.
#[derive(Default)]
struct Pass {
    batches: u64,
    /// Unreadable batches.
    damaged: u64,
    is_disk_failing: bool,
}

impl Pass {
    fn failed(&mut self, path: &Path, error: &BadFile, batches: u64) {
        if error.is_io_error() {
            self.is_disk_failing = true;
            tracing::error!(path = %path.display(), %error, "Failed to read a file; leaving it.");
        } else {
            self.damaged += batches;
            tracing::error!(path = %path.display(), batches, %error, "Failed to read the rest of a file.");
        }
    }
}

async fn in_background<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, RunError> {
    let working = spawn_blocking(work).await;
    working.map_err(|error| RunError::new(format!("reading files ended early: {error}")))
}
