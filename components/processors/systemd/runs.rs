//! Which run of its unit a process belongs to: each start of a unit has an id of its own, which the journal notes, too.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{SystemTime, SystemTimeError, UNIX_EPOCH};

use profcol_processes::Units;

/// Times of processes and of files are counted in hundredths of a second: so many milliseconds the first process of a run
/// may seem to be older than it.
const APART: i64 = 20;

/// A process that was seen in the cgroup of a unit.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Member {
    pub unit: String,
    pub pid: u32,
    /// In milliseconds since 1970.
    pub created: i64,
}

/// Where systemd notes the ids of all units that run, for the journal.
#[derive(Clone, Debug)]
pub(super) struct Runs(pub PathBuf);

impl Default for Runs {
    fn default() -> Self {
        Self("/run/systemd/units".into())
    }
}

impl Runs {
    /// The id of the run that the process belongs to, if that is the unit's present one. A process that is older was moved
    /// into the unit, as into the scope of a session, or was left over by the run before.
    pub fn of(&self, member: &Member, now: i64) -> Option<Arc<str>> {
        let note = self.0.join(format!("invocation:{}", member.unit));
        let id = read(&note)?;
        let since = written(&note).ok()?;
        let is_of_it = (since - APART..=now.max(since)).contains(&member.created)
            || is_in_scope(member.pid, &member.unit);
        // What was found out meanwhile holds if it is the same run as before.
        (is_of_it && read(&note).as_ref() == Some(&id)).then_some(id)
    }
}

/// In milliseconds since 1970.
pub(super) fn now() -> i64 {
    milliseconds(SystemTime::now()).unwrap_or_default()
}

/// Processes are created first and come into a scope then. None is left of it when the next one of its name begins:
/// what is in there now came there in this run, however old it is.
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

/// In milliseconds since 1970.
fn written(note: &Path) -> io::Result<i64> {
    let time = fs::symlink_metadata(note)?.modified()?;
    milliseconds(time).map_err(io::Error::other)
}

fn milliseconds(time: SystemTime) -> Result<i64, SystemTimeError> {
    let since = time.duration_since(UNIX_EPOCH)?.as_millis();
    Ok(i64::try_from(since).unwrap_or(i64::MAX))
}
