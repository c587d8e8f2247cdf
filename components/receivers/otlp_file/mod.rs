//! Reads profiles from files written by the `file` exporter.
//!
//! ```text
//! files ──► portion of records ──► pipelines ──► outcomes
//!    ▲                                              │
//!    └── a restart continues ◄── stored ◄── positions without a gap
//! ```
//!
//! Files are read on blocking threads, a portion at a time. The next portion is read once all of it was accepted.

mod check;
mod config;
mod delivery;
mod files;
mod positions;
mod record;
mod store;
mod tail;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use async_trait::async_trait;
use parking_lot::Mutex;
use profcol_admission::Admission;
use profcol_component::{
    BuildContext, BuildError, Check, ComponentStatus, Factory, Output, Receiver, RunError,
    Stability, StartError, Status, Stop,
};
use profcol_storage::Storage;

pub use self::config::OtlpFileConfig;
use self::delivery::{Counters, Delivery, InFlight};
use self::files::Files;
use self::positions::Positions;
use self::store::Store;
use crate::shared::Memory;

pub struct OtlpFile {
    config: OtlpFileConfig,
    files: Files,
    positions: Arc<Mutex<Positions>>,
    store: Store,
    counters: Counters,
    admission: Admission,
    status: ComponentStatus,
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
        let storage = config.storage.as_ref();
        let storage = storage.map(|storage| context.extension::<Arc<Storage>>(storage));
        let storage = storage.transpose()?.as_deref().map(Arc::clone);
        Ok(Box::new(OtlpFile::new(config, storage.as_deref(), context)))
    }
}

impl OtlpFile {
    fn new(config: &OtlpFileConfig, storage: Option<&Storage>, context: &BuildContext) -> Self {
        let id = context.id.to_string();
        let counter = |name: &str, help: &str| {
            let name = format!("otelcol_receiver_otlp_file_{name}");
            context.meter.counter(&name, help, &[("receiver", &id)])
        };
        let positions = Arc::default();
        Self {
            config: config.clone(),
            files: Files::new(config, Arc::clone(&positions)),
            store: Store::new(
                Arc::clone(&positions),
                storage.map(|storage| storage.checkpoint(&id)),
                counter(
                    "forgotten_positions",
                    "Positions in files that were forgotten because there were too many.",
                ),
            ),
            positions,
            counters: Counters {
                damaged: counter("damaged_records", "Unreadable records that were skipped."),
                undelivered: counter(
                    "undelivered_profile_samples",
                    "Samples not delivered to all destinations.",
                ),
                repeated: counter(
                    "repeated_records",
                    "Records pushed again because the exporters gave up on them.",
                ),
            },
            admission: context.admission.clone(),
            status: context.status.clone(),
        }
    }
}

#[async_trait]
impl Receiver for OtlpFile {
    async fn start(&mut self) -> Result<(), StartError> {
        let is_resumed = self.store.load();
        self.files.begin(is_resumed);
        if self.files.is_empty() {
            tracing::warn!(include = %self.config.include.join(", "), "No files match.");
        }
        // Records appended from now on are read even if the first of them ends the process.
        self.store.store().await;
        Ok(())
    }

    async fn check(&mut self) -> Vec<Check> {
        check::check(&self.config).await
    }

    async fn run(self: Box<Self>, output: Output, stop: Stop) -> Result<(), RunError> {
        let Self {
            config,
            files,
            positions,
            store,
            counters,
            admission,
            status,
        } = *self;
        let delivery = Arc::new(Delivery::new(
            output.for_transport("file"),
            stop.clone(),
            Memory::new(admission, stop.clone()),
            &config,
            counters,
            positions,
        ));
        let reader = Reader {
            config,
            files,
            delivery,
            stop,
        };
        let ended = tokio::select! {
            ended = reader.run(&store, &status) => ended,
            never = store.run() => match never {},
        };
        store.store().await;
        ended
    }
}

/// The running receiver.
struct Reader {
    config: OtlpFileConfig,
    files: Files,
    delivery: Arc<Delivery>,
    stop: Stop,
}

impl Reader {
    async fn run(self, store: &Store, status: &ComponentStatus) -> Result<(), RunError> {
        let Self {
            config,
            mut files,
            delivery,
            stop,
        } = self;
        let mut in_flight = InFlight::default();
        while delivery.goes_on() {
            let memory = delivery.memory_to_read(&mut in_flight).await?;
            let records;
            (files, records) = run_blocking(files, Files::read).await?;
            drop(memory);
            let at_end = records.is_empty();
            for record in records {
                if !delivery.goes_on() {
                    break;
                }
                delivery.process(record, &mut in_flight).await?;
            }
            if at_end && !config.follow {
                break;
            }
            if at_end {
                status.set(match files.error().or_else(|| store.error()) {
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
        delivery.finish(in_flight).await?;
        if config.follow {
            return Ok(());
        }
        let totals = delivery.totals();
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
