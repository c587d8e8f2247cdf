//! Reads profiles from files written by the `file` exporter.
//!
//! Files are read on blocking threads, a portion at a time. A portion is passed on record by record; the next
//! portion is read once all of it was accepted.

mod check;
mod config;
mod files;
mod record;
mod tail;
#[cfg(test)]
mod tests;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use profcol_component::{
    BuildContext, BuildError, Check, ComponentStatus, Factory, Finalizer, Finalizers, IntCounter,
    Outcome, Output, Receiver, RunError, Source, Stability, StartError, Status, Stop,
};
use profcol_profile::Profiles;
use tokio::sync::watch;

pub use self::config::OtlpFileConfig;
use self::files::{Files, Record};
use crate::shared::offer;

/// Maximum delay between retries, unless the refusal has one.
const MAX_RETRY_DELAY: Duration = Duration::from_secs(5);

pub struct OtlpFile {
    config: OtlpFileConfig,
    files: Files,
    counters: Counters,
    status: ComponentStatus,
}

#[derive(Clone)]
struct Counters {
    damaged: IntCounter,
    undelivered: IntCounter,
}

/// Passes records on and tracks those in flight.
struct Delivery {
    output: Output,
    stop: Stop,
    counters: Counters,
    totals: Arc<watch::Sender<Totals>>,
}

/// What was read, and the outcomes.
#[derive(Clone, Default)]
struct Totals {
    records: u64,
    damaged_records: u64,
    samples: u64,
    /// Samples that failed validation.
    invalid_samples: u64,
    delivered_samples: u64,
    /// Samples permanently refused by a destination.
    refused_samples: u64,
    in_flight: usize,
}

/// The position of a record, for messages.
#[derive(Clone)]
struct RecordPosition {
    path: PathBuf,
    offset: u64,
}

impl Factory for OtlpFile {
    const NAME: &'static str = "otlp_file";
    const ALIASES: &'static [&'static str] = &["otlpjsonfile"];
    const STABILITY: Stability = Stability::Alpha;
    /// Two instances would read the same records.
    const IS_EXCLUSIVE: bool = true;
    type Config = OtlpFileConfig;
    type Component = dyn Receiver;

    fn build(
        config: &OtlpFileConfig,
        context: &BuildContext,
    ) -> Result<Box<dyn Receiver>, BuildError> {
        Ok(Box::new(OtlpFile::new(config, context)))
    }
}

impl OtlpFile {
    fn new(config: &OtlpFileConfig, context: &BuildContext) -> Self {
        let id = context.id.to_string();
        let counter = |name, help| context.meter.counter(name, help, &[("receiver", &id)]);
        Self {
            config: config.clone(),
            files: Files::new(config),
            status: context.status.clone(),
            counters: Counters {
                damaged: counter(
                    "otelcol_receiver_otlp_file_damaged_records",
                    "Unreadable records that were skipped.",
                ),
                undelivered: counter(
                    "otelcol_receiver_otlp_file_undelivered_profile_samples",
                    "Samples not delivered to all destinations.",
                ),
            },
        }
    }
}

#[async_trait]
impl Receiver for OtlpFile {
    async fn start(&mut self) -> Result<(), StartError> {
        self.files.begin();
        if self.files.is_empty() {
            tracing::warn!(include = %self.config.include.join(", "), "No files match.");
        }
        Ok(())
    }

    async fn check(&mut self) -> Vec<Check> {
        check::check(&self.config).await
    }

    async fn run(self: Box<Self>, output: Output, stop: Stop) -> Result<(), RunError> {
        let Self {
            config,
            mut files,
            counters,
            status,
        } = *self;
        let delivery = Delivery {
            output: output.for_transport("file"),
            stop: stop.clone(),
            counters,
            totals: Arc::default(),
        };
        while !stop.is_cancelled() {
            let records;
            (files, records) = run_blocking(files, Files::read).await?;
            let at_end = records.is_empty();
            for record in records {
                delivery.process(record).await;
            }
            if at_end && !config.follow {
                break;
            }
            if at_end {
                status.set(match files.error() {
                    Some(error) => Status::RecoverableError(error.into()),
                    None => Status::Ok,
                });
                tokio::select! {
                    () = tokio::time::sleep(config.poll_interval.into()) => {}
                    () = stop.cancelled() => break,
                }
                (files, ()) = run_blocking(files, Files::scan).await?;
            }
        }
        delivery.finish().await;
        if config.follow {
            return Ok(());
        }
        let totals = delivery.totals.borrow().clone();
        totals.log(&files);
        if stop.is_cancelled() {
            return Ok(());
        }
        totals.to_result(&files)
    }
}

async fn run_blocking<R: Send + 'static>(
    mut files: Files,
    act: impl FnOnce(&mut Files) -> R + Send + 'static,
) -> Result<(Files, R), RunError> {
    let working = tokio::task::spawn_blocking(move || {
        let result = act(&mut files);
        (files, result)
    });
    working
        .await
        .map_err(|error| RunError::new(format!("failed to read files: {error}")))
}

// === impl Delivery ===

impl Delivery {
    async fn process(&self, record: Record) {
        let place = RecordPosition {
            path: record.path,
            offset: record.offset,
        };
        match record.content {
            Ok(received) => {
                let dropped: usize = received.repaired.values().sum();
                self.totals.send_modify(|totals| {
                    totals.records += 1;
                    totals.invalid_samples += dropped as u64;
                });
                if dropped > 0 {
                    self.output.count_failed(dropped as u64);
                    let offset = place.offset;
                    tracing::warn!(path = %place.path.display(), offset, dropped, "Dropping invalid samples.");
                }
                if !received.profiles.is_empty() {
                    self.deliver(received.profiles, &place).await;
                }
            }
            Err(damage) => {
                self.counters.damaged.inc();
                self.totals
                    .send_modify(|totals| totals.damaged_records += 1);
                let offset = place.offset;
                tracing::error!(path = %place.path.display(), offset, error = %damage, "Skipping a damaged record.");
            }
        }
    }

    async fn deliver(&self, profiles: Profiles, place: &RecordPosition) {
        let samples = profiles.sample_count() as u64;
        let waiting = self.watch(place.clone(), samples);
        let offered = offer(
            &self.output,
            &self.stop,
            &profiles,
            Source::Replayable,
            waiting,
            MAX_RETRY_DELAY,
        )
        .await;
        if let Err(refusal) = offered {
            let offset = place.offset;
            tracing::error!(path = %place.path.display(), offset, error = %refusal, "Record permanently refused.");
        }
    }

    fn watch(&self, place: RecordPosition, samples: u64) -> Finalizers {
        self.totals.send_modify(|totals| {
            totals.samples += samples;
            totals.in_flight += 1;
        });
        let totals = Arc::clone(&self.totals);
        let undelivered = self.counters.undelivered.clone();
        let mut finalizers = Finalizers::default();
        finalizers.add(Finalizer::new(move |outcome| {
            if outcome != Outcome::Delivered {
                undelivered.inc_by(samples);
                let RecordPosition { path, offset } = &place;
                tracing::warn!(path = %path.display(), offset, samples, outcome = outcome.name(), "Record not delivered to all destinations.");
            }
            totals.send_modify(|totals| totals.settle(samples, outcome));
        }));
        finalizers
    }

    /// Waits for the outcome of all records, or for a stop: then the pipelines
    /// deliver the rest.
    async fn finish(&self) {
        let mut totals = self.totals.subscribe();
        tokio::select! {
            _ = totals.wait_for(|totals| totals.in_flight == 0) => {}
            () = self.stop.cancelled() => {}
        }
    }
}

// === impl Totals ===

impl Totals {
    fn settle(&mut self, samples: u64, outcome: Outcome) {
        self.in_flight -= 1;
        match outcome {
            Outcome::Delivered => self.delivered_samples += samples,
            Outcome::Rejected => self.refused_samples += samples,
            Outcome::Undelivered | Outcome::Lost => {}
        }
    }

    fn undelivered_samples(&self) -> u64 {
        self.samples - self.delivered_samples - self.refused_samples
    }

    fn log(&self, files: &Files) {
        tracing::info!(
            files = files.read_files(),
            unreadable_files = files.unreadable_files(),
            records = self.records,
            damaged_records = self.damaged_records,
            samples = self.samples,
            invalid_samples = self.invalid_samples,
            delivered_samples = self.delivered_samples,
            refused_samples = self.refused_samples,
            undelivered_samples = self.undelivered_samples(),
            "Finished reading files."
        );
    }

    fn to_result(&self, files: &Files) -> Result<(), RunError> {
        let failures = [
            ("unreadable files", files.unreadable_files() as u64),
            ("damaged records", self.damaged_records),
            ("invalid samples", self.invalid_samples),
            ("refused samples", self.refused_samples),
            ("undelivered samples", self.undelivered_samples()),
        ];
        let failures = failures.iter().filter(|(_, count)| *count > 0);
        let failures: Vec<String> = failures
            .map(|(failure, count)| format!("{failure}: {count}"))
            .collect();
        if failures.is_empty() {
            return Ok(());
        }
        let failures = failures.join(", ");
        Err(RunError::new(format!(
            "not everything was delivered ({failures})"
        )))
    }
}
