//! Says in which container a process runs, by the path of its cgroup.

#[cfg(test)]
mod tests;

use async_trait::async_trait;
use profcol_component::{
    Answer, Batch, BuildContext, BuildError, Consumer, Factory, Processor, Stability,
};
use profcol_config::Config;
use profcol_profile::Attributes;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::shared::attributes::{CGROUP, add_missing, text_of};

pub struct ContainerProcessor;

/// Says in which container a process runs.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, Serialize)]
#[serde(default)]
pub struct ContainerConfig {}

impl Config for ContainerConfig {}

impl Factory for ContainerProcessor {
    const NAME: &'static str = "container";
    type Config = ContainerConfig;
    type Component = dyn Processor;
    const STABILITY: Stability = Stability::Alpha;

    fn build(_: &ContainerConfig, _: &BuildContext) -> Result<Box<dyn Processor>, BuildError> {
        Ok(Box::new(ContainerProcessor))
    }
}

#[async_trait]
impl Processor for ContainerProcessor {
    async fn process(&self, mut batch: Batch, next: &dyn Consumer) -> Answer {
        batch
            .profiles
            .update_resources(|resource| add(&mut resource.attributes));
        next.consume(batch).await
    }
}

/// Adds what is missing; says whether there was something to add.
pub fn add(attributes: &mut Attributes) -> bool {
    let Some(cgroup) = text_of(attributes, CGROUP) else {
        return false;
    };
    let Some(container) = profcol_processes::container(&cgroup) else {
        return false;
    };
    let runtime = container.runtime.map(Into::into);
    let found = [
        ("container.id", Some(container.id.into())),
        ("container.runtime.name", runtime),
    ];
    add_missing(attributes, found)
}
