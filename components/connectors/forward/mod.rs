//! Passes each batch to all pipelines that it feeds.

#[cfg(test)]
mod tests;

use std::sync::Arc;

use async_trait::async_trait;
use profcol_component::{
    Answer, Batch, BuildContext, BuildError, Connector, Factory, Pipelines, Stability,
};
use profcol_config::{Config, PipelineId};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub struct Forward {
    pipelines: Arc<[PipelineId]>,
}

/// Merges or branches pipelines.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, Serialize)]
#[serde(default)]
pub struct ForwardConfig {}

impl Config for ForwardConfig {}

impl Factory for Forward {
    const NAME: &'static str = "forward";
    const STABILITY: Stability = Stability::Alpha;
    type Config = ForwardConfig;
    type Component = dyn Connector;

    fn build(_: &ForwardConfig, context: &BuildContext) -> Result<Box<dyn Connector>, BuildError> {
        Ok(Box::new(Forward {
            pipelines: Arc::clone(&context.pipelines),
        }))
    }
}

#[async_trait]
impl Connector for Forward {
    async fn process(&self, batch: Batch, next: &dyn Pipelines) -> Answer {
        next.push(batch, &self.pipelines).await
    }
}
