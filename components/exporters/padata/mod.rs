//! Records profiles in Parca Agent's offline files.
//!
//! ```text
//! export ──► Recording (fsync, then the count) ──(interval, or size)──► RecordingDirectory: zstd, quota
//! ```
//!
//! A batch is accepted when it is on disk. All file operations run on blocking threads, one batch
//! at a time.

mod config;
mod directory;
mod recording;
#[cfg(test)]
mod tests;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use profcol_component::{
    Batch, BuildContext, BuildError, Check, Delivered, Delivery, Exporter, Factory, Gauge,
    IntCounter, Refusal, RunError, Stability, StartError, Stop, path_check,
};
use profcol_parca::LabelRules;
use profcol_profile::Profiles;
use tokio::sync::Mutex;
use tokio::task::{JoinError, spawn_blocking};

pub use self::config::PadataConfig;
use self::config::WhenFull;
use self::directory::{DropOutcome, RecordingDirectory};
use self::recording::{Recording, WriteError};

/// How often to check whether the file is complete.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);

pub struct Padata {
    recorder: Arc<Mutex<Recorder>>,
}

struct Recorder {
    config: PadataConfig,
    rules: LabelRules,
    /// `None` before the start.
    directory: Option<RecordingDirectory>,
    /// `None` before the first batch of a file.
    recording: Option<Recording>,
    telemetry: Telemetry,
}

/// The result of an attempt to record a batch.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Attempt {
    Done,
    /// Retry: space was freed, or a new file is needed.
    Again,
}

struct Telemetry {
    written_bytes: IntCounter,
    complete_files: IntCounter,
    dropped_files: IntCounter,
    dropped_samples: IntCounter,
    failed_writes: IntCounter,
    bytes: Gauge,
}

impl Factory for Padata {
    const NAME: &'static str = "padata";
    const STABILITY: Stability = Stability::Alpha;
    /// Two instances would rotate and remove the same files.
    const IS_EXCLUSIVE: bool = true;
    type Config = PadataConfig;
    type Component = dyn Exporter;

    fn writes(config: &PadataConfig) -> Vec<PathBuf> {
        vec![PathBuf::from(&config.storage_path)]
    }

    fn build(
        config: &PadataConfig,
        context: &BuildContext,
    ) -> Result<Box<dyn Exporter>, BuildError> {
        let recorder = Recorder {
            config: config.clone(),
            rules: config.label_rules(),
            directory: None,
            recording: None,
            telemetry: Telemetry::new(context),
        };
        Ok(Box::new(Self {
            recorder: Arc::new(Mutex::new(recorder)),
        }))
    }
}

#[derive(Debug, thiserror::Error)]
#[error("recording failed: {0}")]
struct TaskFailed(#[source] JoinError);

#[derive(Debug, thiserror::Error)]
#[error("storage_path {}: {error}", path.display())]
struct DirectoryError {
    path: PathBuf,
    #[source]
    error: io::Error,
}

impl Padata {
    async fn with_recorder<T: Send + 'static>(
        &self,
        act: impl FnOnce(&mut Recorder) -> T + Send + 'static,
    ) -> Result<T, TaskFailed> {
        let mut recorder = Arc::clone(&self.recorder).lock_owned().await;
        let acting = spawn_blocking(move || act(&mut recorder));
        acting.await.map_err(TaskFailed)
    }
}

#[async_trait]
impl Exporter for Padata {
    fn delivery(&self) -> Delivery {
        Delivery::inline()
    }

    async fn start(&self) -> Result<(), StartError> {
        let opened = self.with_recorder(Recorder::open).await;
        opened.map_err(StartError::new)?.map_err(StartError::new)
    }

    async fn check(&self) -> Vec<Check> {
        let recorder = self.recorder.lock().await;
        path_check::of_directory(Path::new(&recorder.config.storage_path), true).await
    }

    async fn export(&self, batch: &Batch) -> Result<Delivered, Refusal> {
        let profiles = batch.profiles.clone();
        let recorded = self.with_recorder(move |recorder| recorder.record(&profiles));
        let recorded = recorded.await.map_err(Refusal::permanent)?;
        recorded.map(|()| Delivered::default())
    }

    async fn run(self: Arc<Self>, stop: Stop) -> Result<(), RunError> {
        loop {
            tokio::select! {
                () = stop.cancelled() => break,
                () = tokio::time::sleep(CHECK_INTERVAL) => {}
            }
            let rotated = self.with_recorder(Recorder::rotate_if_complete).await;
            rotated.map_err(RunError::new)?;
        }
        // The last file is left as it is: uploaders can read it, and the next start completes it.
        let closed = self.with_recorder(|recorder| recorder.recording = None);
        closed.await.map_err(RunError::new)
    }
}

impl Recorder {
    fn open(&mut self) -> Result<(), DirectoryError> {
        let path = Path::new(&self.config.storage_path);
        let opened = RecordingDirectory::open(path, self.config.compression_level);
        let directory = opened.map_err(|error| DirectoryError {
            path: path.to_owned(),
            error,
        })?;
        self.directory = Some(directory);
        self.report_bytes();
        Ok(())
    }

    fn record(&mut self, profiles: &Profiles) -> Result<(), Refusal> {
        self.rotate_if_complete();
        let removed = self.recording.take_if(|recording| !recording.is_there());
        if let Some(removed) = removed {
            tracing::error!(path = %removed.path().display(), samples = removed.samples(), "The active file was removed and its samples are lost; creating a new one.");
        }
        // Each attempt has one file less to drop.
        while self.try_record(profiles)? == Attempt::Again {}
        Ok(())
    }

    fn try_record(&mut self, profiles: &Profiles) -> Result<Attempt, Refusal> {
        if self.recording.is_none() {
            match self.begin()? {
                Ok(recording) => self.recording = Some(recording),
                Err(error) => return self.after(error),
            }
        }
        let Some(recording) = &self.recording else {
            return Err(Refusal::retry("no file is open"));
        };
        let encoded = recording
            .encode(profiles.model(), &self.rules, self.config.schema)
            .map_err(Refusal::permanent)?;
        let Some(encoded) = encoded else {
            return Ok(Attempt::Done);
        };
        let bytes = encoded.len();
        if self.make_room(bytes)? == Attempt::Again {
            return Ok(Attempt::Again);
        }
        let Some(recording) = &mut self.recording else {
            return Err(Refusal::retry("no file is open"));
        };
        if let Err(error) = recording.write(encoded) {
            // Bytes after the last counted batch are garbage.
            if !error.is_of_full_disk() || recording.cut().is_err() {
                self.rotate();
            }
            return self.after(error);
        }
        self.telemetry.written_bytes.inc_by(bytes);
        self.report_bytes();
        Ok(Attempt::Done)
    }

    fn begin(&mut self) -> Result<Result<Recording, WriteError>, Refusal> {
        let Some(directory) = &self.directory else {
            return Err(Refusal::retry("not started yet"));
        };
        if !directory.is_lock_held() {
            self.open().map_err(Refusal::retry)?;
        }
        Ok(Recording::begin(Path::new(&self.config.storage_path)))
    }

    /// A disk that is full below the quota is handled like a reached quota.
    fn after(&mut self, error: WriteError) -> Result<Attempt, Refusal> {
        self.telemetry.failed_writes.inc();
        if !error.is_of_full_disk() || self.config.when_full == WhenFull::Stop {
            return Err(refusal(error));
        }
        match self.drop_oldest()? {
            DropOutcome::File { .. } => Ok(Attempt::Again),
            DropOutcome::InUse | DropOutcome::Nothing => Err(refusal(error)),
        }
    }

    fn make_room(&mut self, bytes: u64) -> Result<Attempt, Refusal> {
        let limit = self.config.max_total_bytes;
        if self.total_bytes() + bytes <= limit {
            return Ok(Attempt::Done);
        }
        if let Some(directory) = &mut self.directory {
            directory.forget_removed();
        }
        while self.total_bytes() + bytes > limit {
            if self.config.when_full == WhenFull::Stop {
                let reason = format!("the files have reached `max_total_bytes` ({limit} bytes)");
                return Err(Refusal::retry(reason));
            }
            match self.drop_oldest()? {
                DropOutcome::File { .. } => {}
                DropOutcome::InUse => {
                    let reason = "all files are being uploaded, and none can be dropped";
                    return Err(Refusal::retry(reason));
                }
                DropOutcome::Nothing if self.has_batches() => {
                    self.rotate();
                    return Ok(Attempt::Again);
                }
                DropOutcome::Nothing => {
                    let reason =
                        format!("a batch of {bytes} bytes does not fit into `max_total_bytes`");
                    return Err(Refusal::permanent(reason));
                }
            }
        }
        Ok(Attempt::Done)
    }

    fn drop_oldest(&mut self) -> Result<DropOutcome, Refusal> {
        let Some(directory) = &mut self.directory else {
            return Ok(DropOutcome::Nothing);
        };
        let dropped = directory
            .drop_oldest()
            .map_err(|error| Refusal::retry(format!("failed to drop a file: {error}")))?;
        if let DropOutcome::File { samples } = dropped {
            self.telemetry.dropped_files.inc();
            self.telemetry.dropped_samples.inc_by(samples);
        }
        Ok(dropped)
    }

    fn has_batches(&self) -> bool {
        let recording = self.recording.as_ref();
        recording.is_some_and(|recording| recording.batches() > 0)
    }

    fn rotate_if_complete(&mut self) {
        let interval = self.config.rotation_interval.to_std();
        let max_bytes = self.config.max_file_bytes;
        let is_complete = self
            .recording
            .as_ref()
            .is_some_and(|recording| recording.is_complete(interval, max_bytes));
        if is_complete {
            self.rotate();
        }
    }

    fn rotate(&mut self) {
        let (Some(recording), Some(directory)) = (self.recording.take(), &mut self.directory)
        else {
            return;
        };
        let path: PathBuf = recording.path().to_owned();
        let samples = recording.samples();
        if recording.batches() > 0 {
            self.telemetry.complete_files.inc();
        }
        drop(recording);
        directory.add(&path, Some(samples));
        self.report_bytes();
    }

    fn total_bytes(&self) -> u64 {
        let written = self.recording.as_ref().map_or(0, Recording::len);
        let complete = self.directory.as_ref().map_or(0, RecordingDirectory::bytes);
        written + complete
    }

    fn report_bytes(&self) {
        #[expect(clippy::cast_precision_loss, reason = "disks are far below 2^52 bytes")]
        self.telemetry.bytes.set(self.total_bytes() as f64);
    }
}

fn refusal(error: WriteError) -> Refusal {
    match error {
        WriteError::Io { .. } => Refusal::retry(error),
        WriteError::Encode(_) | WriteError::TooLong(_) => Refusal::permanent(error),
    }
}

impl Telemetry {
    fn new(context: &BuildContext) -> Self {
        let id = context.id.to_string();
        let labels = [("exporter", id.as_str())];
        let counter = |name: &str, help: &str| {
            let name = format!("otelcol_exporter_padata_{name}");
            context.meter.counter(&name, help, &labels)
        };
        Self {
            written_bytes: counter("written_bytes", "Bytes written, before compression."),
            complete_files: counter("complete_files", "Files completed."),
            dropped_files: counter("dropped_files", "Old files dropped to make room."),
            dropped_samples: counter(
                "dropped_profile_samples",
                "Undelivered samples in dropped files.",
            ),
            failed_writes: counter("failed_writes", "Failed writes."),
            bytes: context.meter.gauge(
                "otelcol_exporter_padata_bytes",
                "Total size of all files in bytes.",
                &labels,
            ),
        }
    }
}
