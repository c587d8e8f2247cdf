//! Changes attributes of resources: adds, renames, hashes, removes.
//!
//! Only the resources of a batch are decoded and encoded; its samples keep their bytes.

mod config;
#[cfg(test)]
mod tests;

use async_trait::async_trait;
use profcol_component::{
    Answer, Batch, BuildContext, BuildError, Consumer, Factory, Processor, Stability,
};

pub use self::config::ResourceConfig;
use crate::shared::actions::Changes;

pub struct ResourceProcessor {
    changes: Changes,
}

impl Factory for ResourceProcessor {
    const NAME: &'static str = "resource";
    const STABILITY: Stability = Stability::Beta;
    type Config = ResourceConfig;
    type Component = dyn Processor;

    fn build(config: &ResourceConfig, _: &BuildContext) -> Result<Box<dyn Processor>, BuildError> {
        Ok(Box::new(ResourceProcessor::new(config)?))
    }
}

impl ResourceProcessor {
    fn new(config: &ResourceConfig) -> Result<Self, BuildError> {
        Ok(Self {
            changes: Changes::new(&config.attributes)?,
        })
    }
}

#[async_trait]
impl Processor for ResourceProcessor {
    async fn process(&self, mut batch: Batch, next: &dyn Consumer) -> Answer {
        let metadata = &batch.metadata;
        batch
            .profiles
            .update_resources(|resource| self.changes.apply(&mut resource.attributes, metadata));
        next.consume(batch).await
    }
}
