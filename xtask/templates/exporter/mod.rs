//! Logs the number of samples of each batch.

#[cfg(test)]
mod tests;

use async_trait::async_trait;
use profcol_component::{
    Batch, BuildContext, BuildError, Delivered, Delivery, Exporter, Factory, Refusal, Stability,
};
use profcol_config::{ComponentId, Config, Problems};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Logs the number of samples of each batch.
#[derive(Clone, Debug, Deserialize, JsonSchema, Serialize)]
#[serde(default)]
pub struct ExporterNameConfig {
    /// Log message.
    pub message: String,
}

impl Default for ExporterNameConfig {
    fn default() -> Self {
        Self {
            message: "Batch".to_owned(),
        }
    }
}

impl Config for ExporterNameConfig {
    fn validate(&self, problems: &mut Problems) {
        if self.message.is_empty() {
            problems.add("message", "must not be empty");
        }
    }
}

pub struct ExporterName {
    id: ComponentId,
    message: String,
}

impl Factory for ExporterName {
    const NAME: &'static str = "exporter_name";
    const STABILITY: Stability = Stability::Development;
    type Config = ExporterNameConfig;
    type Component = dyn Exporter;

    fn build(config: &ExporterNameConfig, context: &BuildContext) -> Result<Box<dyn Exporter>, BuildError> {
        Ok(Box::new(ExporterName {
            id: context.id.clone(),
            message: config.message.clone(),
        }))
    }
}

#[async_trait]
impl Exporter for ExporterName {
    /// `inline` exports synchronously in the caller: for exporters that only write locally. Those that wait for a network
    /// need a queue instead: `DeliverySettings` provides the options `sending_queue` and `retry_on_failure`.
    fn delivery(&self) -> Delivery {
        Delivery::inline()
    }

    async fn export(&self, batch: &Batch) -> Result<Delivered, Refusal> {
        tracing::info!(exporter = %self.id, samples = batch.profiles.sample_count(), "{}", self.message);
        Ok(Delivered::default())
    }
}
