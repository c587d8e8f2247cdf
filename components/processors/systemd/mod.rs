//! Says to which of systemd's units a process belongs, by the path of its cgroup, and what systemd tells of that unit.
//!
//! The run of the unit that a process belongs to is read from systemd's files. Descriptions, and runs that ended, are
//! asked for beside the batches: no batch waits for them unless it is to.

mod asker;
mod bus;
mod config;
mod directory;
mod runs;
mod teller;
#[cfg(test)]
mod tests;

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

use self::asker::Asker;
use self::config::DbusConfig;
pub use self::config::SystemdConfig;
use self::teller::Teller;
use crate::shared::outcomes::{Edited, Outcomes};
use crate::shared::patience::Patience;

/// How long systemd is asked for those who ask once.
const ONCE: Duration = Duration::from_secs(2);

pub struct SystemdProcessor {
    config: DbusConfig,
    teller: Teller,
    patience: Patience,
    outcomes: Outcomes,
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
        let dropped = counter(
            "profcol_systemd_dropped",
            "Units not queried: queue full.",
        );
        Self {
            config: config.dbus.clone(),
            teller: Teller::new(config.assume_local, dropped),
            patience: Patience::new(config.wait_for.into(), &context.meter, &id),
            outcomes: Outcomes::new(),
            failed: counter(
                "profcol_systemd_failed",
                "Failed queries to systemd.",
            ),
        }
    }
}

#[async_trait]
impl Processor for SystemdProcessor {
    async fn start(&self) -> Result<(), StartError> {
        self.teller.learn_host(Host::read);
        Ok(())
    }

    async fn process(&self, mut batch: Batch, next: &dyn Consumer) -> Answer {
        let teller = &self.teller;
        let looked = (self.outcomes).look(&batch.profiles, teller.directory.version());
        let members = looked.unknown().map(|it| teller.member(&it.attributes));
        let members: Vec<_> = members.collect();
        teller.read_runs(&members).await;
        let questions = || match self.config.enabled {
            true => teller.questions(&members),
            false => Vec::new(),
        };
        self.patience.ask(teller.directory.news(), questions).await;
        let mut members = members.iter();
        looked.apply(&mut batch.profiles, |resource| {
            let member = members.next().and_then(Option::as_ref);
            Edited::for_long(teller.fill(&mut resource.attributes, member))
        });
        next.consume(batch).await
    }

    async fn run(self: Arc<Self>, _: Arc<dyn Consumer>, stop: Stop) -> Result<(), RunError> {
        if self.config.enabled {
            let asker = Asker {
                config: &self.config,
                directory: &self.teller.directory,
                failed: &self.failed,
            };
            asker.run(self.patience.questions(), &stop).await;
        }
        stop.cancelled().await;
        Ok(())
    }
}

/// Adds to processes of this host what is missing, for those who ask once: what systemd does not tell soon is left out.
pub async fn describe(config: &SystemdConfig, processes: &mut [Attributes]) {
    let unseen = || Meter::default().counter("unseen", "Nobody sees it.", &[]);
    let teller = Teller::new(true, unseen());
    teller.learn_host(Host::read);
    let members: Vec<_> = processes.iter().map(|it| teller.member(it)).collect();
    teller.read_runs(&members).await;
    if config.dbus.enabled {
        teller.questions(&members);
        let asker = Asker {
            config: &config.dbus,
            directory: &teller.directory,
            failed: &unseen(),
        };
        // What was told until then is known.
        let _ = timeout(ONCE, asker.ask()).await;
    }
    for (attributes, member) in processes.iter_mut().zip(&members) {
        teller.fill(attributes, member.as_ref());
    }
}
