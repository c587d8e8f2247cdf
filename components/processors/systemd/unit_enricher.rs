//! What is known of the units that processes belong to: by the paths of their cgroups, by systemd's files and by what
//! systemd was asked for.

use std::collections::HashSet;
use std::sync::{Arc, OnceLock};

use profcol_component::IntCounter;
use profcol_processes::{Host, Units};
use profcol_profile::{Attributes, Value};

use super::directory::Directory;
use super::runs::{Member, Process, Runs};
use super::unit_fetcher::now;
use crate::shared::local::{LocalProcess, is_of};
use crate::shared::lookup::{CGROUP, add_missing, text_of};
use crate::shared::run_blocking::run_blocking;

pub(super) struct UnitEnricher {
    assume_local: bool,
    /// Once it was read.
    pub host: OnceLock<Host>,
    pub runs: Runs,
    pub directory: Arc<Directory>,
}

impl UnitEnricher {
    pub fn new(assume_local: bool, dropped: IntCounter) -> Self {
        Self {
            assume_local,
            host: OnceLock::new(),
            runs: Runs::default(),
            directory: Arc::new(Directory::new(dropped)),
        }
    }

    pub fn set_host(&self, read: impl FnOnce() -> Host) {
        self.host.get_or_init(read);
    }

    /// This host, where it runs the process.
    fn host_of(&self, attributes: &Attributes) -> Option<&Host> {
        let is_here = |host: &&Host| is_of(host, attributes).unwrap_or(self.assume_local);
        self.host.get().filter(is_here)
    }

    /// Of which unit of this host's systemd it is. Above those of another one, in a container, stands the container.
    pub fn member(&self, attributes: &Attributes) -> Option<Member> {
        let cgroup = text_of(attributes, CGROUP)?;
        let units = Units::of(&cgroup);
        let unit = units.unit.filter(|_| units.is_outermost)?;
        let host = self.host_of(attributes)?;
        let process = LocalProcess::of(attributes, host, self.assume_local);
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
    pub async fn read_runs(&self, members: &[Option<Member>]) {
        let members = members.iter().flatten();
        let is_stranger =
            |member: &&Member| member.process.is_some() && !self.directory.has_run(member);
        let strangers: HashSet<Member> = members.filter(is_stranger).cloned().collect();
        if strangers.is_empty() {
            return;
        }
        let (runs, directory) = (self.runs.clone(), Arc::clone(&self.directory));
        run_blocking(move || {
            for member in strangers {
                if let Some(id) = runs.of(&member, now()) {
                    directory.add_run(member, id);
                }
            }
        })
        .await;
    }

    /// What systemd is to be asked because of these.
    pub fn questions(&self, members: &[Option<Member>]) -> Vec<String> {
        let members = members.iter().flatten();
        let questions = members.filter_map(|member| self.directory.question(member));
        let questions: HashSet<String> = questions.collect();
        questions.into_iter().collect()
    }

    /// Adds what is missing; says whether there was something to add.
    pub fn fill(&self, attributes: &mut Attributes, member: Option<&Member>) -> bool {
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

/// Adds what is missing; says whether there was something to add. `host` is the one that runs the
/// process, where that is this one.
pub(super) fn add(attributes: &mut Attributes, host: Option<&Host>) -> bool {
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
