//! Shows the profiles of a pipeline: in the log, or as text on the terminal or in files.

mod config;
mod detailed;
mod output;
mod sampling;
#[cfg(test)]
mod tests;
mod text;

use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use async_trait::async_trait;
use profcol_component::{
    Batch, BuildContext, BuildError, Delivered, Delivery, Exporter, Factory, Refusal, Stability,
    StartError, files,
};
use profcol_config::ComponentId;
use profcol_profile::Profiles;

pub use self::config::DebugConfig;
use self::config::Verbosity;
use self::output::Output;
use self::sampling::Sampling;

pub struct Debug {
    id: ComponentId,
    config: DebugConfig,
    sampling: Sampling,
    /// Set at startup, unless the internal logger is used.
    output: OnceLock<Arc<Output>>,
}

impl Factory for Debug {
    const NAME: &'static str = "debug";
    const STABILITY: Stability = Stability::Alpha;
    type Config = DebugConfig;
    type Component = dyn Exporter;

    fn writes(config: &DebugConfig) -> Vec<PathBuf> {
        let paths = files::of_outputs(&config.output_paths);
        paths.map(files::directory_of).collect()
    }

    fn build(
        config: &DebugConfig,
        context: &BuildContext,
    ) -> Result<Box<dyn Exporter>, BuildError> {
        Ok(Box::new(Debug::new(config, context)))
    }
}

impl Debug {
    fn new(config: &DebugConfig, context: &BuildContext) -> Self {
        Self {
            id: context.id.clone(),
            sampling: Sampling::new(config.sampling_initial, config.sampling_thereafter),
            config: config.clone(),
            output: OnceLock::new(),
        }
    }

    fn log(&self, profiles: &Profiles) {
        tracing::info!(
            otelcol.component.id = %self.id,
            otelcol.component.kind = "exporter",
            "resource profiles" = profiles.counts().resources,
            "sample records" = profiles.sample_count(),
            "Profiles"
        );
        if let Some(text) = text(self.config.verbosity, profiles) {
            tracing::info!(
                otelcol.component.id = %self.id,
                otelcol.component.kind = "exporter",
                "{text}"
            );
        }
    }
}

#[async_trait]
impl Exporter for Debug {
    fn delivery(&self) -> Delivery {
        self.config.delivery()
    }

    async fn start(&self) -> Result<(), StartError> {
        if !self.config.use_internal_logger {
            let output = Output::open(&self.config.output_paths).map_err(StartError::new)?;
            self.output.get_or_init(|| Arc::new(output));
        }
        Ok(())
    }

    async fn export(&self, batch: &Batch) -> Result<Delivered, Refusal> {
        if !self.sampling.admits(Instant::now()) {
            return Ok(Delivered::default());
        }
        let Some(output) = self.output.get().cloned() else {
            self.log(&batch.profiles);
            return Ok(Delivered::default());
        };
        let (verbosity, profiles) = (self.config.verbosity, batch.profiles.clone());
        let writing = tokio::task::spawn_blocking(move || {
            let mut lines = headline(&profiles);
            if let Some(text) = text(verbosity, &profiles) {
                lines.push_str(&text);
                lines.push('\n');
            }
            output.write(&lines)
        });
        match writing.await {
            Ok(Ok(())) => Ok(Delivered::default()),
            Ok(Err(error)) => Err(Refusal::retry(error)),
            Err(error) => Err(Refusal::permanent(format!(
                "failed to show a batch: {error}"
            ))),
        }
    }
}

/// The Collector's line: a message, a tab and the fields.
fn headline(profiles: &Profiles) -> String {
    format!(
        "Profiles\t{{\"resource profiles\": {}, \"sample records\": {}}}\n",
        profiles.counts().resources,
        profiles.sample_count()
    )
}

fn text(verbosity: Verbosity, profiles: &Profiles) -> Option<String> {
    match verbosity {
        Verbosity::Basic => None,
        Verbosity::Normal => Some(text::normal(profiles.model())),
        Verbosity::Detailed => Some(detailed::detailed(profiles.model())),
    }
}
