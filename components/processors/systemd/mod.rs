//! Adds the systemd unit that a process belongs to, and the unit's invocation.

#[cfg(test)]
mod tests;

use async_trait::async_trait;
use profcol_component::{
    Answer, Batch, BuildContext, BuildError, Consumer, Factory, Processor, Stability, StartError,
};
use profcol_config::Config;
use profcol_metadata::systemd::UnitEnricher;
use profcol_processes::Host;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::shared::resource_cache::{Edited, ResourceCache};

/// Adds the systemd unit that a process belongs to.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, Serialize)]
#[serde(default)]
pub struct SystemdConfig {
    /// Treat profiles without a host as this host's; they get its machine ID and the invocations of its units.
    pub assume_local: bool,
}

impl Config for SystemdConfig {}

pub struct SystemdProcessor {
    enricher: UnitEnricher,
    resource_cache: ResourceCache,
}

impl Factory for SystemdProcessor {
    const NAME: &'static str = "systemd";
    type Config = SystemdConfig;
    type Component = dyn Processor;
    const STABILITY: Stability = Stability::Alpha;

    fn build(config: &SystemdConfig, _: &BuildContext) -> Result<Box<dyn Processor>, BuildError> {
        Ok(Box::new(SystemdProcessor::new(config)))
    }
}

impl SystemdProcessor {
    fn new(config: &SystemdConfig) -> Self {
        Self {
            enricher: UnitEnricher::new(config.assume_local),
            resource_cache: ResourceCache::new(),
        }
    }
}

#[async_trait]
impl Processor for SystemdProcessor {
    async fn start(&self) -> Result<(), StartError> {
        self.enricher.set_host(Host::read);
        Ok(())
    }

    async fn process(&self, mut batch: Batch, next: &dyn Consumer) -> Answer {
        let enricher = &self.enricher;
        let lookup = self.resource_cache.lookup(&batch.profiles, 0);
        let members = lookup.misses().map(|it| enricher.member(&it.attributes));
        let members: Vec<_> = members.collect();
        enricher.read_invocation_ids(&members).await;
        let mut members = members.iter();
        lookup.apply(&mut batch.profiles, |resource| {
            let member = members.next().and_then(Option::as_ref);
            Edited::cacheable(enricher.fill(&mut resource.attributes, member))
        });
        next.consume(batch).await
    }
}
