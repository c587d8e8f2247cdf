//! Whether a profile is from this host: PIDs and unit names are meaningless elsewhere.

use profcol_processes::{Host, milliseconds};
use profcol_profile::Attributes;

use crate::attributes::{PID, find, text_of};

/// Two sources may report the same start time this far apart, in milliseconds.
const SAME_START: u64 = 1000;

/// The process of a profile, known to run on this host.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct LocalProcess {
    pub pid: u32,
    /// Creation time in milliseconds since the Unix epoch, if the profile has it.
    pub created: Option<i64>,
}

impl LocalProcess {
    pub fn running(pid: u32) -> Self {
        Self { pid, created: None }
    }

    /// `None` if the resource is not a process, or may be of another host: if it names a host, that must be this one.
    /// Without a host it needs a creation time, which the caller compares with the process, unless all processes are
    /// assumed to be local.
    pub fn of(attributes: &Attributes, host: &Host, assume_local: bool) -> Option<Self> {
        let pid = u32::try_from(find(attributes, PID)?.as_int()?).ok()?;
        let created = text_of(attributes, "process.creation.time");
        let created = created.and_then(|text| milliseconds(&text));
        let is_local =
            names_this_host(host, attributes).unwrap_or_else(|| assume_local || created.is_some());
        is_local.then_some(Self { pid, created })
    }

    /// Whether a process with this creation time may be this one.
    pub fn matches_start(&self, created: Option<i64>) -> bool {
        match (self.created, created) {
            (Some(expected), Some(actual)) => expected.abs_diff(actual) <= SAME_START,
            (Some(_), None) => false,
            (None, _) => true,
        }
    }
}

/// Compares the host named by the resource; `None` if it names none.
pub fn names_this_host(host: &Host, attributes: &Attributes) -> Option<bool> {
    let id = text_of(attributes, "host.id");
    match (&id, &host.id, text_of(attributes, "host.name")) {
        (Some(id), Some(own), _) => Some(**id == **own),
        (_, _, Some(name)) => Some(*name == *host.name),
        (Some(_), None, None) => Some(false),
        (None, _, None) => None,
    }
}
