//! Writes profiles to files, as records that the `otlp_file` receiver reads back.
//!
//! A batch is accepted once all of it was handed to the operating system; it is synced to
//! disk within `flush_interval`. Encoding and writing run on blocking threads.

mod backups;
mod config;
mod files;
mod layout;
mod record;
mod record_file;
#[cfg(test)]
mod tests;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use parking_lot::Mutex;
use profcol_component::{
    Batch, BuildContext, BuildError, Check, ComponentStatus, Delivered, Delivery, Exporter,
    Factory, IntCounter, Refusal, RunError, Stability, StartError, Status, Stop, path_check,
};
use profcol_profile::Profiles;
use tokio::sync::Notify;

use self::backups::Backups;
pub use self::config::FileConfig;
use self::files::{Files, WriteError};
use self::layout::{Dropped, Layout};
use self::record::{RecordError, RecordFormat};
use self::record_file::{FileRules, RotationRules};

pub struct File {
    shared: Arc<Shared>,
    written: Notify,
    flush_interval: Duration,
}

struct Shared {
    layout: Layout,
    format: RecordFormat,
    files: Mutex<Files>,
    ungrouped: IntCounter,
    failing: AtomicBool,
    status: ComponentStatus,
}

impl Factory for File {
    const NAME: &'static str = "file";
    const STABILITY: Stability = Stability::Alpha;
    /// Two instances would write to one file.
    const IS_EXCLUSIVE: bool = true;
    type Config = FileConfig;
    type Component = dyn Exporter;

    fn writes(config: &FileConfig) -> Vec<PathBuf> {
        vec![profcol_component::files::directory_of(&config.path)]
    }

    fn build(config: &FileConfig, context: &BuildContext) -> Result<Box<dyn Exporter>, BuildError> {
        Ok(Box::new(File::new(config, context)))
    }
}

impl File {
    fn new(config: &FileConfig, context: &BuildContext) -> Self {
        let format = RecordFormat {
            format: config.format,
            compression: config.compression,
        };
        let grouping = config.grouping();
        let files = Files::new(
            file_rules(config, format),
            !config.append && config.rotation.is_none() && grouping.is_none(),
            (config.create_directory || grouping.is_some()).then(|| config.permissions()),
            grouping.map_or(1, |group_by| group_by.max_open_files),
        );
        let flush_interval = match config.flush_interval.to_std() {
            Duration::ZERO => Duration::from_secs(1),
            interval => interval,
        };
        Self {
            shared: Arc::new(Shared {
                layout: Layout::new(config),
                format,
                files: Mutex::new(files),
                ungrouped: context.meter.counter(
                    "otelcol_exporter_file_ungrouped_profile_samples",
                    "Samples dropped because their resource has no valid file name.",
                    &[("exporter", &context.id.to_string())],
                ),
                failing: AtomicBool::new(false),
                status: context.status.clone(),
            }),
            written: Notify::new(),
            flush_interval,
        }
    }

    async fn sync(&self) {
        let shared = Arc::clone(&self.shared);
        let syncing = tokio::task::spawn_blocking(move || shared.sync());
        if let Err(error) = syncing.await {
            tracing::error!(%error, "The sync task failed.");
        }
    }
}

fn file_rules(config: &FileConfig, format: RecordFormat) -> FileRules {
    let rotation = config.rotation.as_ref();
    let rules = rotation.map(|it| RotationRules::new(it.max_megabytes, it.max_days));
    FileRules {
        format,
        rotation: rules,
        backups: Backups {
            localtime: rotation.is_some_and(|rotation| rotation.localtime),
            max_backups: rotation.map_or(0, |rotation| rotation.max_backups),
            max_age: rules.and_then(|rules| rules.max_age),
        },
    }
}

#[async_trait]
impl Exporter for File {
    fn delivery(&self) -> Delivery {
        Delivery::inline()
    }

    async fn start(&self) -> Result<(), StartError> {
        let mut files = self.shared.files.lock();
        let opened = match &self.shared.layout {
            Layout::Single(path) => files.open(path),
            Layout::Grouped(groups) => files.prepare(&groups.path("any")),
        };
        opened.map_err(StartError::new)
    }

    async fn check(&self) -> Vec<Check> {
        let file = match &self.shared.layout {
            Layout::Single(path) => path.clone(),
            Layout::Grouped(groups) => groups.path("any"),
        };
        let is_created = self.shared.files.lock().creates_directories();
        path_check::of_file(&file, is_created).await
    }

    async fn export(&self, batch: &Batch) -> Result<Delivered, Refusal> {
        let (shared, profiles) = (Arc::clone(&self.shared), batch.profiles.clone());
        let writing = tokio::task::spawn_blocking(move || shared.write(&profiles));
        let answer = writing
            .await
            .map_err(|error| Refusal::permanent(format!("failed to write a batch: {error}")))?;
        self.written.notify_one();
        answer
    }

    async fn run(self: Arc<Self>, stop: Stop) -> Result<(), RunError> {
        while !stop.is_cancelled() {
            tokio::select! {
                () = self.written.notified() => {}
                () = stop.cancelled() => break,
            }
            tokio::select! {
                () = tokio::time::sleep(self.flush_interval) => {}
                () = stop.cancelled() => {}
            }
            self.sync().await;
        }
        self.sync().await;
        Ok(())
    }
}

// === impl Shared ===

impl Shared {
    fn write(&self, profiles: &Profiles) -> Result<Delivered, Refusal> {
        let parts = self.layout.divide(profiles);
        let mut dropped = parts.dropped;
        let mut records = Vec::with_capacity(parts.parts.len());
        for (path, part) in parts.parts {
            let record = self.format.encode(&part).map_err(refusal_of_record)?;
            records.push((path, part, record));
        }
        let mut files = self.files.lock();
        let mut written = Vec::with_capacity(records.len());
        for (path, part, record) in &records {
            match files.append(path, record) {
                Ok(start) => written.push((path, start)),
                Err(error) if error.is_bad_path() && self.may_drop(&error) => dropped.add(part),
                Err(error) => {
                    // The whole batch is sent again, so nothing of it may stay in the files.
                    for (path, start) in written {
                        if let Err(error) = files.take_back(path, start) {
                            tracing::error!(%error, "Failed to undo a partial write; the file contains part of a refused batch.");
                        }
                    }
                    drop(files);
                    return Err(self.fail(error));
                }
            }
        }
        drop(files);
        self.recover();
        Ok(self.delivered(dropped))
    }

    /// A resource with an invalid file name must not block the others.
    fn may_drop(&self, error: &WriteError) -> bool {
        let grouped = matches!(self.layout, Layout::Grouped(_));
        if grouped {
            tracing::warn!(%error, "Dropping a resource whose attribute is not a valid file name.");
        }
        grouped
    }

    fn delivered(&self, dropped: Dropped) -> Delivered {
        self.ungrouped.inc_by(dropped.samples);
        if dropped.profiles == 0 {
            return Delivered::default();
        }
        Delivered {
            rejected_profiles: dropped.profiles,
            message:
                "resources without a usable value of `group_by::resource_attribute` are dropped"
                    .to_owned(),
            undelivered: Vec::new(),
        }
    }

    fn sync(&self) {
        let unsynced = self.files.lock().take_unsynced();
        for (path, file) in unsynced {
            if let Err(source) = file.sync_data() {
                let error = WriteError { path, source };
                tracing::error!(%error, "Failed to sync; accepted records may be lost.");
                self.fail(error);
            }
        }
    }

    fn fail(&self, error: WriteError) -> Refusal {
        self.failing.store(true, Ordering::Relaxed);
        let refusal = match error.is_bad_path() {
            true => Refusal::permanent(error),
            false => Refusal::retry(error),
        };
        let reason = refusal.reason().clone();
        self.status.set(Status::RecoverableError(reason));
        refusal
    }

    fn recover(&self) {
        if self.failing.swap(false, Ordering::Relaxed) {
            self.status.set(Status::Ok);
        }
    }
}

fn refusal_of_record(error: RecordError) -> Refusal {
    match error {
        RecordError::Compress(_) => Refusal::permanent(error),
        RecordError::TooLarge(_) => Refusal::TooLarge {
            reason: error.into(),
            limit_bytes: u32::MAX as usize,
        },
    }
}
