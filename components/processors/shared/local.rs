//! Whether a profile is of this host: numbers of processes and names of units mean nothing elsewhere.

use profcol_processes::{Host, milliseconds};
use profcol_profile::Attributes;

use super::lookup::{PID, find, text_of};

/// Two sources tell of one start as far apart as that, in milliseconds.
const SAME_START: u64 = 1000;

/// A process that a profile speaks of, surely one of this host's.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct LocalProcess {
    pub pid: u32,
    /// When it was created, in milliseconds since 1970, where the profile says it.
    pub created: Option<i64>,
}

impl LocalProcess {
    pub fn running(pid: u32) -> Self {
        Self { pid, created: None }
    }

    /// `None` where the resource is no process, or may be another host's: the host that it names has
    /// to be this one. Where it names none, the time of the process's creation has to be given, and
    /// whoever looks at the process compares it, unless all are assumed to be local.
    pub fn of(attributes: &Attributes, host: &Host, assume_local: bool) -> Option<Self> {
        let pid = u32::try_from(find(attributes, PID)?.as_int()?).ok()?;
        let created = text_of(attributes, "process.creation.time");
        let created = created.and_then(|text| milliseconds(&text));
        let is_local = is_of(host, attributes).unwrap_or_else(|| assume_local || created.is_some());
        is_local.then_some(Self { pid, created })
    }

    /// Whether a process that was created then may be this one.
    pub fn may_be_from(&self, created: Option<i64>) -> bool {
        match (self.created, created) {
            (Some(told), Some(found)) => told.abs_diff(found) <= SAME_START,
            (Some(_), None) => false,
            (None, _) => true,
        }
    }
}

/// By the host that the resource names; `None` where it names none.
pub(crate) fn is_of(host: &Host, attributes: &Attributes) -> Option<bool> {
    let id = text_of(attributes, "host.id");
    match (&id, &host.id, text_of(attributes, "host.name")) {
        (Some(id), Some(own), _) => Some(**id == **own),
        (_, _, Some(name)) => Some(*name == *host.name),
        (Some(_), None, None) => Some(false),
        (None, _, None) => None,
    }
}
