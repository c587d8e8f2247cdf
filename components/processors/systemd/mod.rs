//! Says to which of systemd's units a process belongs, by the path of its cgroup, and what systemd tells of that unit.
//!
//! The run of the unit that a process belongs to is read from systemd's files. Descriptions, and runs that ended, are
//! asked for beside the batches: no batch waits for them unless it is to.

mod bus;
mod config;
mod directory;
mod runs;
#[cfg(test)]
mod tests;
mod unit_enricher;
mod unit_fetcher;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use profcol_component::{
    Answer, Batch, BuildContext, BuildError, Consumer, Factory, IntCounter, Meter, Processor,
    RunError, Stability, StartError, Stop,
};
use profcol_processes::Host;
use profcol_profile::Attributes;
use tokio::time::timeout;

use self::config::DbusConfig;
pub use self::config::SystemdConfig;
use self::unit_enricher::UnitEnricher;
use self::unit_fetcher::UnitFetcher;
use crate::shared::lookup_waiter::LookupWaiter;
use crate::shared::resource_cache::{Edited, ResourceCache};

/// How long systemd is asked for those who ask once.
const DESCRIBE_TIMEOUT: Duration = Duration::from_secs(2);

pub struct SystemdProcessor {
    config: DbusConfig,
    enricher: UnitEnricher,
    waiter: LookupWaiter,
    resource_cache: ResourceCache,
    failed: IntCounter,
}

impl Factory for SystemdProcessor {
    const NAME: &'static str = "systemd";
    type Config = SystemdConfig;
    type Component = dyn Processor;
    const STABILITY: Stability = Stability::Alpha;

    fn build(
        config: &SystemdConfig,
        context: &BuildContext,
    ) -> Result<Box<dyn Processor>, BuildError> {
        Ok(Box::new(SystemdProcessor::new(config, context)))
    }
}

impl SystemdProcessor {
    fn new(config: &SystemdConfig, context: &BuildContext) -> Self {
        let id = context.id.to_string();
        let counter = |name, help| context.meter.counter(name, help, &[("processor", &id)]);
        let dropped = counter("profcol_systemd_dropped", "Units not queried: queue full.");
        Self {
            config: config.dbus.clone(),
            enricher: UnitEnricher::new(config.assume_local, dropped),
            waiter: LookupWaiter::new(config.wait_for.into(), &context.meter, &id),
            resource_cache: ResourceCache::new(),
            failed: counter("profcol_systemd_failed", "Failed queries to systemd."),
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
        let lookup = (self.resource_cache).lookup(&batch.profiles, enricher.directory.version());
        let members = lookup.misses().map(|it| enricher.member(&it.attributes));
        let members: Vec<_> = members.collect();
        enricher.read_runs(&members).await;
        let questions = || match self.config.enabled {
            true => enricher.questions(&members),
            false => Vec::new(),
        };
        self.waiter.wait(enricher.directory.news(), questions).await;
        let mut members = members.iter();
        lookup.apply(&mut batch.profiles, |resource| {
            let member = members.next().and_then(Option::as_ref);
            Edited::cacheable(enricher.fill(&mut resource.attributes, member))
        });
        next.consume(batch).await
    }

    async fn run(self: Arc<Self>, _: Arc<dyn Consumer>, stop: Stop) -> Result<(), RunError> {
        if self.config.enabled {
            let fetcher = UnitFetcher {
                config: &self.config,
                directory: &self.enricher.directory,
                failed: &self.failed,
            };
            fetcher.run(self.waiter.requests(), &stop).await;
        }
        stop.cancelled().await;
        Ok(())
    }
}

/// Adds to processes of this host what is missing, for those who ask once: what systemd does not tell soon is left out.
pub async fn describe(config: &SystemdConfig, processes: &mut [Attributes]) {
    let unseen = || Meter::default().counter("unseen", "Nobody sees it.", &[]);
    let enricher = UnitEnricher::new(true, unseen());
    enricher.set_host(Host::read);
    let members: Vec<_> = processes.iter().map(|it| enricher.member(it)).collect();
    enricher.read_runs(&members).await;
    if config.dbus.enabled {
        enricher.questions(&members);
        let fetcher = UnitFetcher {
            config: &config.dbus,
            directory: &enricher.directory,
            failed: &unseen(),
        };
        // What was told until then is known.
        let _ = timeout(DESCRIBE_TIMEOUT, fetcher.fetch()).await;
    }
    for (attributes, member) in processes.iter_mut().zip(&members) {
        enricher.fill(attributes, member.as_ref());
    }
}
