//! Which run of its unit a process belongs to: each start of a unit has an id of its own, which the journal notes, too.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::UNIX_EPOCH;

use profcol_processes::Units;

/// Times of processes and of files are counted in hundredths of a second: so many milliseconds the first process of a run
/// may seem to be older than it.
const APART: i64 = 20;

/// From one start of a unit up to its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Run {
    pub id: Arc<str>,
    /// When it was about to begin, in milliseconds since 1970.
    pub since: i64,
    /// The end, or when it was asked for.
    pub until: i64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Process {
    pub pid: u32,
    /// In milliseconds since 1970.
    pub created: i64,
}

/// A unit, and the process that was seen in its cgroup where it is known when that was created.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Member {
    pub unit: String,
    pub process: Option<Process>,
}

/// Where systemd notes the ids of all units that run, for the journal.
#[derive(Clone, Debug)]
pub(super) struct Runs(pub PathBuf);

// === impl Run ===

impl Run {
    /// Whether a process of this unit that was created then is of this run. One that is older was moved into the unit,
    /// as into the scope of a session, or was left over by the run before.
    pub fn has(&self, created: i64) -> bool {
        (self.since - APART..=self.until).contains(&created)
    }
}

pub(super) fn id(digits: &str) -> Option<Arc<str>> {
    let is_id = digits.len() == 32 && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_id.then(|| digits.into())
}

// === impl Runs ===

impl Default for Runs {
    fn default() -> Self {
        Self("/run/systemd/units".into())
    }
}

impl Runs {
    /// The id of the run that the process belongs to, if that is the unit's present one.
    pub fn of(&self, member: &Member, now: i64) -> Option<Arc<str>> {
        let process = member.process?;
        let note = self.0.join(format!("invocation:{}", member.unit));
        let id = read(&note)?;
        let since = written(&note).ok()?;
        let until = now.max(since);
        let run = Run { id, since, until };
        let is_of_it = run.has(process.created) || is_in_scope(process.pid, &member.unit);
        // What was found out meanwhile holds if it is the same run as before.
        (is_of_it && read(&note).as_ref() == Some(&run.id)).then_some(run.id)
    }
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
    id(fs::read_link(note).ok()?.to_str()?)
}

/// In milliseconds since 1970.
fn written(note: &Path) -> io::Result<i64> {
    let time = fs::symlink_metadata(note)?.modified()?;
    let since = time.duration_since(UNIX_EPOCH).map_err(io::Error::other)?;
    i64::try_from(since.as_millis()).map_err(io::Error::other)
}
