//! Changes attributes of resources: adds, renames, hashes, removes.
//!
//! Only the resources of a batch are decoded and encoded for it; its samples stay as they came.

mod action;
mod config;
#[cfg(test)]
mod tests;

use async_trait::async_trait;
use profcol_component::{
    Answer, Batch, BuildContext, BuildError, Consumer, Factory, Processor, Stability,
};

use self::action::Change;
pub use self::config::ResourceConfig;

pub struct ResourceProcessor {
    changes: Vec<Change>,
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
        let changes = config.attributes.iter().map(|action| {
            Change::new(action).ok_or_else(|| BuildError(format!("cannot carry out {action:?}")))
        });
        Ok(Self {
            changes: changes.collect::<Result<_, _>>()?,
        })
    }
}

#[async_trait]
impl Processor for ResourceProcessor {
    async fn process(&self, mut batch: Batch, next: &dyn Consumer) -> Answer {
        let metadata = &batch.metadata;
        batch.profiles.update_resources(|resource| {
            let mut changed = false;
            for change in &self.changes {
                changed |= change.apply(&mut resource.attributes, metadata);
            }
            changed
        });
        next.consume(batch).await
    }
}
