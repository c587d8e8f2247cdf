//! The systemd unit of a process from its cgroup path, and the run of the unit from the files that systemd writes for
//! the journal.

mod invocation_ids;

use std::collections::HashSet;
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use profcol_processes::{Host, Units};
use profcol_profile::{Attributes, Value};

pub use self::invocation_ids::{InvocationIds, UnitMember, now};
use crate::attributes::{CGROUP, add_missing, text_of};
use crate::cache::BoundedCache;
use crate::local_process::{LocalProcess, names_this_host};
use crate::run_blocking::run_blocking;

pub const MAX_MEMBERS: usize = 16_384;

/// Invocation ids of processes. They stay valid after the run of the unit has ended.
type InvocationIdCache = Mutex<BoundedCache<UnitMember, Arc<str>>>;

pub struct UnitEnricher {
    assume_local: bool,
    /// Set once read.
    pub host: OnceLock<Host>,
    pub invocation_ids: InvocationIds,
    cache: Arc<InvocationIdCache>,
}

impl UnitEnricher {
    pub fn new(assume_local: bool) -> Self {
        Self {
            assume_local,
            host: OnceLock::new(),
            invocation_ids: InvocationIds::default(),
            cache: Arc::new(Mutex::new(BoundedCache::new(MAX_MEMBERS))),
        }
    }

    pub fn set_host(&self, read: impl FnOnce() -> Host) {
        self.host.get_or_init(read);
    }

    /// This host, if the process runs on it.
    fn host_of(&self, attributes: &Attributes) -> Option<&Host> {
        let is_here = |host: &&Host| names_this_host(host, attributes).unwrap_or(self.assume_local);
        self.host.get().filter(is_here)
    }

    /// The unit of this host's systemd, if the start time of the process is known. Units of another systemd, inside a
    /// container, do not count.
    pub fn member(&self, attributes: &Attributes) -> Option<UnitMember> {
        let cgroup = text_of(attributes, CGROUP)?;
        let units = Units::of(&cgroup);
        let unit = units.unit.filter(|_| units.is_outermost)?;
        let host = self.host_of(attributes)?;
        let process = LocalProcess::of(attributes, host, self.assume_local)?;
        Some(UnitMember {
            unit: unit.to_owned(),
            pid: process.pid,
            created: process.created?,
        })
    }

    /// Reads the invocation ids that are not cached yet.
    pub async fn read_invocation_ids(&self, members: &[Option<UnitMember>]) {
        let uncached: HashSet<UnitMember> = {
            let mut cache = self.cache.lock();
            let members = members.iter().flatten();
            let uncached = members.filter(|&member| cache.get(member).is_none());
            uncached.cloned().collect()
        };
        if uncached.is_empty() {
            return;
        }
        let (ids, cache) = (self.invocation_ids.clone(), Arc::clone(&self.cache));
        run_blocking(move || {
            for member in uncached {
                if let Some(id) = ids.of(&member, now()) {
                    cache.lock().insert(member, id, 1);
                }
            }
        })
        .await;
    }

    /// Adds missing attributes; returns whether anything was added.
    pub fn fill(&self, attributes: &mut Attributes, member: Option<&UnitMember>) -> bool {
        let is_changed = add_units(attributes, self.host_of(attributes));
        let run = member.and_then(|member| self.cache.lock().get(member));
        let run = [("systemd.invocation_id", run.map(Value::Str))];
        add_missing(attributes, run) | is_changed
    }
}

/// Adds missing attributes; returns whether anything was added. `host` is set if the process runs on this host.
pub fn add_units(attributes: &mut Attributes, host: Option<&Host>) -> bool {
    let Some(cgroup) = text_of(attributes, CGROUP) else {
        return false;
    };
    let units = Units::of(&cgroup);
    let text = |text: Option<&str>| text.map(Value::from);
    let unit_attributes = [
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
    add_missing(attributes, unit_attributes)
}

/// Adds unit attributes to processes of this host, once.
pub async fn add_units_to_all(processes: &mut [Attributes]) {
    let enricher = UnitEnricher::new(true);
    enricher.set_host(Host::read);
    let members: Vec<_> = processes.iter().map(|it| enricher.member(it)).collect();
    enricher.read_invocation_ids(&members).await;
    for (attributes, member) in processes.iter_mut().zip(&members) {
        enricher.fill(attributes, member.as_ref());
    }
}
