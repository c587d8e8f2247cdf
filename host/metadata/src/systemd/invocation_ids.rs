//! The run of a unit that a process belongs to: each start of a unit has an invocation id, which is also in the
//! journal.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{SystemTime, SystemTimeError, UNIX_EPOCH};

use profcol_processes::Units;

/// The kernel counts process start times and file times in hundredths of a second, so the first process of a run may
/// seem to be this many milliseconds older than the run.
const CLOCK_TOLERANCE: i64 = 20;

/// A process in a unit's cgroup.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct UnitMember {
    pub unit: String,
    pub pid: u32,
    /// In milliseconds since the Unix epoch.
    pub created: i64,
}

/// The directory where systemd stores the invocation ids of running units for the journal.
#[derive(Clone, Debug)]
pub struct InvocationIds(pub PathBuf);

impl Default for InvocationIds {
    fn default() -> Self {
        Self("/run/systemd/units".into())
    }
}

impl InvocationIds {
    /// The invocation id of the process, if it belongs to the current run of the unit. An older process was moved into
    /// the unit, as into a session scope, or left over from the previous run.
    pub fn of(&self, member: &UnitMember, now: i64) -> Option<Arc<str>> {
        let note = self.0.join(format!("invocation:{}", member.unit));
        let id = read(&note)?;
        let since = written(&note).ok()?;
        let is_of_it = (since - CLOCK_TOLERANCE..=now.max(since)).contains(&member.created)
            || is_in_scope(member.pid, &member.unit);
        // Checked again, because the unit may have been restarted meanwhile.
        (is_of_it && read(&note).as_ref() == Some(&id)).then_some(id)
    }
}

/// In milliseconds since the Unix epoch.
pub fn now() -> i64 {
    milliseconds(SystemTime::now()).unwrap_or_default()
}

/// A process is created before it is moved into a scope. A new scope starts empty even if its name was used before, so
/// its current members joined during this run, however old they are.
fn is_in_scope(pid: u32, unit: &str) -> bool {
    if !unit.ends_with(".scope") {
        return false;
    }
    let cgroup = fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap_or_default();
    let path = profcol_processes::cgroup_in(&cgroup);
    path.and_then(|path| Units::of(path).unit) == Some(unit)
}

fn read(note: &Path) -> Option<Arc<str>> {
    let target = fs::read_link(note).ok()?;
    let digits = target.to_str()?;
    let is_id = digits.len() == 32 && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_id.then(|| digits.into())
}

/// In milliseconds since the Unix epoch.
fn written(note: &Path) -> io::Result<i64> {
    let time = fs::symlink_metadata(note)?.modified()?;
    milliseconds(time).map_err(io::Error::other)
}

fn milliseconds(time: SystemTime) -> Result<i64, SystemTimeError> {
    let since = time.duration_since(UNIX_EPOCH)?.as_millis();
    Ok(i64::try_from(since).unwrap_or(i64::MAX))
}
