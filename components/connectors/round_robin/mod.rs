//! Passes each batch to the next one of the pipelines that it feeds.

#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use profcol_component::{
    Answer, Batch, BuildContext, BuildError, Connector, Factory, Pipelines, Stability,
};
use profcol_config::{Config, PipelineId};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub struct RoundRobin {
    pipelines: Arc<[PipelineId]>,
    batches: AtomicUsize,
}

/// Spreads batches evenly over pipelines.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, Serialize)]
#[serde(default)]
pub struct RoundRobinConfig {}

impl Config for RoundRobinConfig {}

impl Factory for RoundRobin {
    const NAME: &'static str = "round_robin";
    const ALIASES: &'static [&'static str] = &["roundrobin"];
    const STABILITY: Stability = Stability::Alpha;
    type Config = RoundRobinConfig;
    type Component = dyn Connector;

    fn build(
        _: &RoundRobinConfig,
        context: &BuildContext,
    ) -> Result<Box<dyn Connector>, BuildError> {
        Ok(Box::new(RoundRobin {
            pipelines: Arc::clone(&context.pipelines),
            batches: AtomicUsize::new(0),
        }))
    }
}

#[async_trait]
impl Connector for RoundRobin {
    async fn process(&self, batch: Batch, next: &dyn Pipelines) -> Answer {
        let number = self.batches.fetch_add(1, Ordering::Relaxed);
        let turn = number.checked_rem(self.pipelines.len());
        let pipeline = turn.and_then(|turn| self.pipelines.get(turn..=turn));
        next.push(batch, pipeline.unwrap_or_default()).await
    }
}
