//! Says to which of systemd's units a process belongs, by the path of its cgroup, and what systemd tells of that unit.
//!
//! The run of the unit that a process belongs to is read from systemd's files. Descriptions, and runs that ended, are
//! asked for beside the batches: no batch waits for them unless it is to.

mod asker;
mod bus;
mod config;
mod dbus;
mod directory;
mod runs;
#[cfg(test)]
mod tests;

use std::collections::HashSet;
use std::sync::{Arc, OnceLock};

use async_trait::async_trait;
use profcol_component::{
    Answer, Batch, BuildContext, BuildError, Consumer, Factory, IntCounter, Processor, RunError,
    Stability, StartError, Stop,
};
use profcol_processes::{Host, Units};
use profcol_profile::{Attributes, Value};

use self::asker::{Asker, now};
pub use self::config::SystemdConfig;
use self::directory::Directory;
use self::runs::{Member, Process, Runs};
use crate::shared::beside::beside;
use crate::shared::local::{LocalProcess, is_of};
use crate::shared::lookup::{CGROUP, add_missing, text_of};
use crate::shared::outcomes::{Edited, Outcomes};
use crate::shared::patience::Patience;

pub struct SystemdProcessor {
    config: SystemdConfig,
    /// From the start on.
    host: OnceLock<Host>,
    runs: Runs,
    directory: Arc<Directory>,
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
            "Units that systemd was not asked for, since too many others had to be.",
        );
        Self {
            config: config.clone(),
            host: OnceLock::new(),
            runs: Runs::default(),
            directory: Arc::new(Directory::new(dropped)),
            patience: Patience::new(config.wait_for.into(), &context.meter, &id),
            outcomes: Outcomes::new(),
            failed: counter(
                "profcol_systemd_failed",
                "How many times systemd could not be asked.",
            ),
        }
    }

    /// This host, where it runs the process.
    fn host_of(&self, attributes: &Attributes) -> Option<&Host> {
        let is_here = |host: &&Host| is_of(host, attributes).unwrap_or(self.config.assume_local);
        self.host.get().filter(is_here)
    }

    /// Of which unit of this host's systemd it is. Above those of another one, in a container, stands the container.
    fn member(&self, attributes: &Attributes) -> Option<Member> {
        let cgroup = text_of(attributes, CGROUP)?;
        let units = Units::of(&cgroup);
        let unit = units.unit.filter(|_| units.is_outermost)?;
        let host = self.host_of(attributes)?;
        let process = LocalProcess::of(attributes, host, self.config.assume_local);
        let process = process.and_then(|LocalProcess { pid, created }| {
            let created = created?;
            Some(Process { pid, created })
        });
        Some(Member {
            unit: unit.to_owned(),
            process,
        })
    }

    /// Reads the runs that are not known yet.
    async fn read_runs(&self, members: &[Option<Member>]) {
        let members = members.iter().flatten();
        let is_stranger =
            |member: &&Member| member.process.is_some() && !self.directory.has_run(member);
        let strangers: HashSet<Member> = members.filter(is_stranger).cloned().collect();
        if strangers.is_empty() {
            return;
        }
        let (runs, directory) = (self.runs.clone(), Arc::clone(&self.directory));
        beside(move || {
            for member in strangers {
                if let Some(id) = runs.of(&member, now()) {
                    directory.add_run(member, id);
                }
            }
        })
        .await;
    }

    /// What systemd is to be asked because of a batch.
    fn questions(&self, members: &[Option<Member>]) -> Vec<String> {
        if !self.config.dbus.enabled {
            return Vec::new();
        }
        let members = members.iter().flatten();
        let questions = members.filter_map(|member| self.directory.question(member));
        let questions: HashSet<String> = questions.collect();
        questions.into_iter().collect()
    }

    fn fill(&self, attributes: &mut Attributes, member: Option<&Member>) -> bool {
        let is_changed = add(attributes, self.host_of(attributes));
        let Some(member) = member else {
            return is_changed;
        };
        let found = self.directory.find(member);
        let found = [
            (
                "systemd.unit_description",
                found.description.map(Value::Str),
            ),
            ("systemd.invocation_id", found.run.map(Value::Str)),
        ];
        add_missing(attributes, found) | is_changed
    }
}

#[async_trait]
impl Processor for SystemdProcessor {
    async fn start(&self) -> Result<(), StartError> {
        self.host.get_or_init(Host::read);
        Ok(())
    }

    async fn process(&self, mut batch: Batch, next: &dyn Consumer) -> Answer {
        let looked = (self.outcomes).look(&batch.profiles, self.directory.version());
        let members = looked.unknown().map(|it| self.member(&it.attributes));
        let members: Vec<Option<Member>> = members.collect();
        self.read_runs(&members).await;
        let questions = || self.questions(&members);
        self.patience.ask(self.directory.news(), questions).await;
        let mut members = members.iter();
        looked.apply(&mut batch.profiles, |resource| {
            let member = members.next().and_then(Option::as_ref);
            Edited {
                is_changed: self.fill(&mut resource.attributes, member),
                lasts: true,
            }
        });
        next.consume(batch).await
    }

    async fn run(self: Arc<Self>, _: Arc<dyn Consumer>, stop: Stop) -> Result<(), RunError> {
        if self.config.dbus.enabled {
            let asker = Asker {
                config: &self.config.dbus,
                directory: &self.directory,
                failed: &self.failed,
            };
            asker.run(self.patience.questions(), &stop).await;
        }
        stop.cancelled().await;
        Ok(())
    }
}

/// Adds what is missing; says whether there was something to add. `host` is the one that runs the
/// process, where that is this one.
pub fn add(attributes: &mut Attributes, host: Option<&Host>) -> bool {
    let Some(cgroup) = text_of(attributes, CGROUP) else {
        return false;
    };
    let units = Units::of(&cgroup);
    let text = |text: Option<&str>| text.map(Value::from);
    let found = [
        ("systemd.unit", text(units.unit)),
        ("systemd.slice", text(units.slice)),
        ("systemd.user_unit", text(units.user_unit)),
        ("systemd.user_slice", text(units.user_slice)),
        ("systemd.session", text(units.session)),
        (
            "systemd.owner_uid",
            units.owner.map(|owner| i64::from(owner).into()),
        ),
        ("systemd.machine", text(units.machine)),
        ("systemd.machine_id", text(host.and_then(Host::machine_id))),
    ];
    add_missing(attributes, found)
}
