//! Logs how many samples each batch has.

#[cfg(test)]
mod tests;

use async_trait::async_trait;
use profcol_component::{
    Batch, BuildContext, BuildError, Delivered, Delivery, Exporter, Factory, Refusal, Stability,
};
use profcol_config::{ComponentId, Config, Problems};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Logs how many samples each batch has.
#[derive(Clone, Debug, Deserialize, JsonSchema, Serialize)]
#[serde(default)]
pub struct TypeConfig {
    /// The text of the log line.
    pub message: String,
}

impl Default for TypeConfig {
    fn default() -> Self {
        Self {
            message: "Batch".to_owned(),
        }
    }
}

impl Config for TypeConfig {
    fn validate(&self, problems: &mut Problems) {
        if self.message.is_empty() {
            problems.add("message", "must not be empty");
        }
    }
}

pub struct Type {
    id: ComponentId,
    message: String,
}

impl Factory for Type {
    const NAME: &'static str = "NAME";
    const STABILITY: Stability = Stability::Development;
    type Config = TypeConfig;
    type Component = dyn Exporter;

    fn build(config: &TypeConfig, context: &BuildContext) -> Result<Box<dyn Exporter>, BuildError> {
        Ok(Box::new(Type {
            id: context.id.clone(),
            message: config.message.clone(),
        }))
    }
}

#[async_trait]
impl Exporter for Type {
    /// `inline` exports in the call of whoever pushes. Whatever waits for a network or a disk has a queue instead:
    /// `DeliverySettings` gives it the options `sending_queue` and `retry_on_failure`.
    fn delivery(&self) -> Delivery {
        Delivery::inline()
    }

    async fn export(&self, batch: &Batch) -> Result<Delivered, Refusal> {
        tracing::info!(exporter = %self.id, samples = batch.profiles.sample_count(), "{}", self.message);
        Ok(Delivered::default())
    }
}
