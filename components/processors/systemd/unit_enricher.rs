//! What is known of the units that processes belong to: by the paths of their cgroups, and by systemd's files.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, OnceLock};

use profcol_processes::{Host, Units};
use profcol_profile::{Attributes, Value};

use super::runs::{Member, Runs, now};
use crate::shared::generations::Generations;
use crate::shared::local::{LocalProcess, is_of};
use crate::shared::locks::lock;
use crate::shared::lookup::{CGROUP, add_missing, text_of};
use crate::shared::run_blocking::run_blocking;

/// So many processes are known.
pub(super) const MEMBERS: usize = 16_384;

/// The ids of the runs that processes are of. Once found they hold, also when that run has ended.
type KnownRuns = Mutex<Generations<Member, Arc<str>>>;

pub(super) struct UnitEnricher {
    assume_local: bool,
    /// Once it was read.
    pub host: OnceLock<Host>,
    pub runs: Runs,
    known: Arc<KnownRuns>,
}

impl UnitEnricher {
    pub fn new(assume_local: bool) -> Self {
        Self {
            assume_local,
            host: OnceLock::new(),
            runs: Runs::default(),
            known: Arc::new(Mutex::new(Generations::new(MEMBERS))),
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

    /// Of which unit of this host's systemd it is, where it is known when it was created. Above the units of another systemd,
    /// in a container, stands the container.
    pub fn member(&self, attributes: &Attributes) -> Option<Member> {
        let cgroup = text_of(attributes, CGROUP)?;
        let units = Units::of(&cgroup);
        let unit = units.unit.filter(|_| units.is_outermost)?;
        let host = self.host_of(attributes)?;
        let process = LocalProcess::of(attributes, host, self.assume_local)?;
        Some(Member {
            unit: unit.to_owned(),
            pid: process.pid,
            created: process.created?,
        })
    }

    /// Reads the runs that are not known yet.
    pub async fn read_runs(&self, members: &[Option<Member>]) {
        let unknown: HashSet<Member> = {
            let mut known = lock(&self.known);
            let members = members.iter().flatten();
            let unknown = members.filter(|&member| known.get(member).is_none());
            unknown.cloned().collect()
        };
        if unknown.is_empty() {
            return;
        }
        let (runs, known) = (self.runs.clone(), Arc::clone(&self.known));
        run_blocking(move || {
            for member in unknown {
                if let Some(id) = runs.of(&member, now()) {
                    lock(&known).insert(member, id, 1);
                }
            }
        })
        .await;
    }

    /// Adds what is missing; says whether there was something to add.
    pub fn fill(&self, attributes: &mut Attributes, member: Option<&Member>) -> bool {
        let is_changed = add(attributes, self.host_of(attributes));
        let run = member.and_then(|member| lock(&self.known).get(member));
        let run = [("systemd.invocation_id", run.map(Value::Str))];
        add_missing(attributes, run) | is_changed
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
