//! Writes one profile of all batches when it stops: for runs of limited time.

mod config;
#[cfg(test)]
mod tests;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use async_trait::async_trait;
use parking_lot::Mutex;
use profcol_component::{
    Batch, BuildContext, BuildError, Check, Delivered, Delivery, Exporter, Factory, Gauge, Refusal,
    RunError, Stability, StartError, Stop, files, path_check,
};
use profcol_files::Format;
use profcol_pprof::{Limits, sets};
use profcol_profile::{Model, Profile};

pub use self::config::ProfileFileConfig;
use crate::shared::pprof_builder::PprofBuilder;

pub struct ProfileFile {
    config: ProfileFileConfig,
    /// The profile so far.
    profile: Mutex<PprofBuilder>,
    telemetry: Telemetry,
}

struct Telemetry {
    written_bytes: Gauge,
    unnamed_samples: Gauge,
    written_samples: Gauge,
}

#[derive(Debug, thiserror::Error)]
enum SaveError {
    #[error("failed to write {path}: {source}")]
    Io {
        path: String,
        source: std::io::Error,
    },
    #[error(transparent)]
    Write(#[from] profcol_files::WriteError),
    #[error(transparent)]
    Pprof(#[from] profcol_pprof::PprofError),
}

impl Factory for ProfileFile {
    const NAME: &'static str = "profile_file";
    const STABILITY: Stability = Stability::Alpha;
    /// Two instances would write to one file.
    const IS_EXCLUSIVE: bool = true;
    type Config = ProfileFileConfig;
    type Component = dyn Exporter;

    fn writes(config: &ProfileFileConfig) -> Vec<PathBuf> {
        match config.file() {
            Some(_) => vec![files::directory_of(&config.path)],
            None => Vec::new(),
        }
    }

    fn build(
        config: &ProfileFileConfig,
        context: &BuildContext,
    ) -> Result<Box<dyn Exporter>, BuildError> {
        Ok(Box::new(Self {
            config: config.clone(),
            profile: Mutex::new(PprofBuilder::new(config.labels.selection())),
            telemetry: Telemetry::new(context),
        }))
    }
}

impl ProfileFile {
    fn refuse_directory(&self) -> Result<(), String> {
        match self.config.file() {
            Some(path) if path.is_dir() => Err(format!("{} is a directory", path.display())),
            _ => Ok(()),
        }
    }

    fn save(&self) -> Result<(), SaveError> {
        let empty = PprofBuilder::new(self.config.labels.selection());
        let profile = std::mem::replace(&mut *self.profile.lock(), empty);
        if profile.is_empty() {
            tracing::info!(
                path = self.config.path,
                "No samples received; no file is written."
            );
            return Ok(());
        }
        let pprof = profile.finish();
        let path = &self.config.path;
        let format = self.config.format().unwrap_or_default();
        let model = profcol_pprof::read(
            &pprof,
            Limits {
                file_bytes: usize::MAX,
                model_bytes: usize::MAX,
            },
        )?;
        self.telemetry.count(&model);
        let content = match format {
            Format::Pprof => profcol_pprof::gzip(&pprof),
            other => profcol_files::write(&model, other, &self.config.title)?,
        };
        let written = match self.config.file() {
            Some(file) => write_whole(file, &content),
            None => write_out(&content),
        };
        written.map_err(|source| SaveError::Io {
            path: path.clone(),
            source,
        })?;
        #[expect(clippy::cast_precision_loss, reason = "files are far below 2^52 bytes")]
        self.telemetry.written_bytes.set(content.len() as f64);
        tracing::info!(path, bytes = content.len(), %format, "Wrote the profile.");
        Ok(())
    }
}

fn write_out(content: &[u8]) -> std::io::Result<()> {
    let mut output = std::io::stdout().lock();
    output.write_all(content)?;
    output.flush()
}

/// The name of the file while it is written. Another profcol may write the same file.
fn unfinished(path: &Path) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}.tmp", std::process::id()));
    path.with_file_name(name)
}

fn create_directory_of(path: &Path) -> std::io::Result<()> {
    match path.parent() {
        Some(directory) if !directory.exists() => files::create_directories(directory),
        _ => Ok(()),
    }
}

/// Fails if the file could not be written later, when the profile would be lost.
fn try_to_write(path: &Path) -> std::io::Result<()> {
    create_directory_of(path)?;
    let unfinished = unfinished(path);
    files::write(&unfinished, [])?;
    std::fs::remove_file(unfinished)
}

/// Replaces the file atomically.
fn write_whole(path: &Path, content: &[u8]) -> std::io::Result<()> {
    create_directory_of(path)?;
    let unfinished = unfinished(path);
    files::write(&unfinished, content)?;
    std::fs::rename(&unfinished, path).inspect_err(|_| {
        // A partial file is useless.
        let _ = std::fs::remove_file(&unfinished);
    })
}

#[async_trait]
impl Exporter for ProfileFile {
    fn delivery(&self) -> Delivery {
        Delivery::inline()
    }

    async fn start(&self) -> Result<(), StartError> {
        let Some(path) = self.config.file() else {
            return Ok(());
        };
        self.refuse_directory().map_err(StartError::new)?;
        try_to_write(path).map_err(|source| {
            let path = self.config.path.clone();
            StartError::new(SaveError::Io { path, source })
        })
    }

    async fn check(&self) -> Vec<Check> {
        let Some(file) = self.config.file() else {
            return Vec::new();
        };
        match self.refuse_directory() {
            Ok(()) => path_check::of_file(file, true).await,
            Err(error) => vec![
                Check::new("path", error)
                    .fail("profcol does not start", "set `path` to the name of a file"),
            ],
        }
    }

    async fn export(&self, batch: &Batch) -> Result<Delivered, Refusal> {
        let model = batch.profiles.model();
        let mut profile = self.profile.lock();
        let limit = self.config.max_memory_mib << 20;
        if profile.heap_size() >= limit {
            return Err(Refusal::permanent(format!(
                "the profile has reached {} MiB; raise `max_memory_mib` or record for a shorter time",
                self.config.max_memory_mib
            )));
        }
        for set in sets(model).filter(|set| set.sample_count() > 0) {
            profile
                .add(&set, &model.dictionary, &batch.deferred_symbols)
                .map_err(Refusal::permanent)?;
        }
        Ok(Delivered::default())
    }

    async fn run(self: Arc<Self>, stop: Stop) -> Result<(), RunError> {
        stop.cancelled().await;
        let saved = tokio::task::spawn_blocking(move || self.save()).await;
        let failed = |error: &dyn std::fmt::Display| RunError::new(error.to_string());
        match saved {
            Ok(saved) => saved.map_err(|error| failed(&error)),
            Err(error) => Err(failed(&error)),
        }
    }
}

impl Telemetry {
    fn new(context: &BuildContext) -> Self {
        let id = context.id.to_string();
        let labels = [("exporter", id.as_str())];
        let gauge = |name: &str, help: &str| {
            let name = format!("otelcol_exporter_profile_file_{name}");
            context.meter.gauge(&name, help, &labels)
        };
        Self {
            written_bytes: gauge("written_bytes", "Size of the written file."),
            written_samples: gauge("written_samples", "Samples in the written file."),
            unnamed_samples: gauge(
                "unnamed_samples",
                "Samples in the written file whose innermost frame has no function name.",
            ),
        }
    }

    fn count(&self, model: &Model) {
        let (mut all, mut unnamed) = (0u64, 0u64);
        let dictionary = &model.dictionary;
        // Each sample is in the profile of every sample type; count one of them.
        let counts = |profile: &&Profile| {
            let unit = profile.sample_type.map(|kind| kind.unit);
            unit.is_some_and(|unit| dictionary.strings.get(unit) == "count")
        };
        let Some(profile) = model.profiles().find(counts) else {
            return;
        };
        for sample in profile.samples.iter() {
            let count = u64::try_from(sample.observed()).unwrap_or(0);
            let innermost = dictionary.stacks.get(sample.stack).first();
            let is_named =
                innermost.is_some_and(|&it| !dictionary.locations.get(it).lines.is_empty());
            all += count;
            unnamed += if is_named { 0 } else { count };
        }
        #[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
        {
            self.written_samples.set(all as f64);
            self.unnamed_samples.set(unnamed as f64);
        }
    }
}
