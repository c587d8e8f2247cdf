//! Reads profiles back from the files that the `file` exporter writes.
//!
//! Files are read on threads for blocking work, a portion at a time; a portion is handed on record
//! by record, and the next one is read when all of it was taken.

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
    BuildContext, BuildError, Factory, Finalizer, Finalizers, IntCounter, Outcome, Output,
    Receiver, RunError, Stability, StartError, Stop,
};
use profcol_profile::Profiles;
use tokio::sync::watch;

pub use self::config::OtlpFileConfig;
use self::files::{Files, Record};
use crate::shared::offer;

/// No wait before a refused record is offered again is longer, unless the refusal says so.
const LONGEST_WAIT: Duration = Duration::from_secs(5);

pub struct OtlpFile {
    config: OtlpFileConfig,
    files: Files,
    counters: Counters,
}

#[derive(Clone)]
struct Counters {
    damaged: IntCounter,
    undelivered: IntCounter,
}

/// Hands records on and knows which have not come to their end.
struct Delivery {
    output: Output,
    stop: Stop,
    counters: Counters,
    in_flight: Arc<watch::Sender<usize>>,
}

/// Where a record stands, for messages.
#[derive(Clone)]
struct Place {
    path: PathBuf,
    offset: u64,
}

impl Factory for OtlpFile {
    const NAME: &'static str = "otlp_file";
    const ALIASES: &'static [&'static str] = &["otlpjsonfile"];
    const STABILITY: Stability = Stability::Alpha;
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
            counters: Counters {
                damaged: counter(
                    "otelcol_receiver_otlp_file_damaged_records",
                    "Records that could not be read and were skipped.",
                ),
                undelivered: counter(
                    "otelcol_receiver_otlp_file_undelivered_records",
                    "Records that were read and did not reach all destinations.",
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
            tracing::warn!(include = ?self.config.include, "No file matches.");
        }
        Ok(())
    }

    async fn run(self: Box<Self>, output: Output, stop: Stop) -> Result<(), RunError> {
        let Self {
            config,
            mut files,
            counters,
        } = *self;
        let delivery = Delivery {
            output: output.for_transport("file"),
            stop: stop.clone(),
            counters,
            in_flight: Arc::default(),
        };
        while !stop.is_cancelled() {
            let records;
            (files, records) = in_background(files, Files::read).await?;
            let at_end = records.is_empty();
            for record in records {
                delivery.hand_on(record).await;
            }
            if at_end && !config.follow {
                break;
            }
            if at_end {
                tokio::select! {
                    () = tokio::time::sleep(config.poll_interval.into()) => {}
                    () = stop.cancelled() => break,
                }
                (files, ()) = in_background(files, Files::look).await?;
            }
        }
        delivery.finish().await;
        Ok(())
    }
}

async fn in_background<R: Send + 'static>(
    mut files: Files,
    act: impl FnOnce(&mut Files) -> R + Send + 'static,
) -> Result<(Files, R), RunError> {
    let working = tokio::task::spawn_blocking(move || {
        let result = act(&mut files);
        (files, result)
    });
    working
        .await
        .map_err(|error| RunError(format!("failed to read files: {error}")))
}

// === impl Delivery ===

impl Delivery {
    async fn hand_on(&self, record: Record) {
        let place = Place {
            path: record.path,
            offset: record.offset,
        };
        match record.content {
            Ok(received) => {
                let dropped: usize = received.repaired.values().sum();
                if dropped > 0 {
                    self.output.count_failed(dropped as u64);
                    let offset = place.offset;
                    tracing::warn!(path = %place.path.display(), offset, dropped, "Dropping samples that break the rules.");
                }
                if !received.profiles.is_empty() {
                    self.deliver(received.profiles, &place).await;
                }
            }
            Err(damage) => {
                self.counters.damaged.inc();
                let offset = place.offset;
                tracing::error!(path = %place.path.display(), offset, error = %damage, "Skipping a damaged record.");
            }
        }
    }

    async fn deliver(&self, profiles: Profiles, place: &Place) {
        let waiting = self.watch(place.clone());
        let offered = offer(&self.output, &self.stop, &profiles, waiting, LONGEST_WAIT).await;
        if let Err(refusal) = offered {
            let offset = place.offset;
            tracing::error!(path = %place.path.display(), offset, error = %refusal, "A record was refused for ever.");
        }
    }

    fn watch(&self, place: Place) -> Finalizers {
        self.in_flight.send_modify(|count| *count += 1);
        let in_flight = Arc::clone(&self.in_flight);
        let undelivered = self.counters.undelivered.clone();
        let mut finalizers = Finalizers::default();
        finalizers.add(Finalizer::new(move |outcome| {
            if outcome != Outcome::Delivered {
                undelivered.inc();
                let Place { path, offset } = &place;
                tracing::warn!(path = %path.display(), offset, ?outcome, "A record did not reach all destinations.");
            }
            in_flight.send_modify(|count| *count -= 1);
        }));
        finalizers
    }

    /// Waits until it is known of all records what became of them, or a stop is asked for: then
    /// the pipelines see to the rest.
    async fn finish(self) {
        let mut in_flight = self.in_flight.subscribe();
        tokio::select! {
            _ = in_flight.wait_for(|count| *count == 0) => {}
            () = self.stop.cancelled() => {}
        }
    }
}
