//! Information about processes, reported by the BPF program at the first sample: short-lived processes
//! exit before /proc can be read.

use std::collections::{HashMap, HashSet};
use std::fs;

use profcol_ebpf_loader::{Names, Process, ProcessKey, file_number};
use profcol_processes::{Host, Users, cgroup_in, container, executable_path, timestamp};

use super::interval::Interval;

pub struct Processes {
    /// The name of the host they run on.
    pub host: String,
    known: HashMap<ProcessKey, ProcessInfo>,
    limit: usize,
    users: Users,
    intervals: u64,
}

#[derive(Clone, Debug, Default)]
pub struct ProcessInfo {
    pub name: String,
    pub parent: u32,
    /// The user name, or the UID if there is no name.
    pub owner: String,
    /// The number of its executable's file; 0 means none.
    pub executable: u32,
    /// Empty if unknown.
    pub cgroup: String,
    pub container: Option<String>,
    /// Its PID in its own namespace.
    pub own_pid: u32,
    pub created: String,
    pub arguments: Vec<String>,
    /// The last interval in which it was sampled.
    seen: u64,
}

impl Processes {
    pub fn new(limit: usize) -> Self {
        Self {
            host: Host::read().name,
            known: HashMap::new(),
            limit,
            users: Users::read(),
            intervals: 0,
        }
    }

    /// `created` is Unix time.
    pub fn add(&mut self, process: &Process, cgroup: Names<'_>, arguments: &[u8], created: u64) {
        if process.executable == file_number::IN_EXEC && self.known.contains_key(&process.process) {
            return;
        }
        let cgroup = cgroup.path().to_string_lossy().into_owned();
        let known = ProcessInfo {
            name: text(&process.name),
            parent: process.parent,
            owner: self.users.name(process.user),
            executable: process.executable,
            container: container(&cgroup).map(|container| container.id.to_owned()),
            cgroup,
            own_pid: process.own_pid,
            created: creation_time(created),
            arguments: profcol_processes::arguments(arguments),
            seen: self.intervals,
        };
        self.known.insert(process.process, known);
    }

    pub fn get(&self, key: &ProcessKey) -> Option<&ProcessInfo> {
        self.known.get(key)
    }

    /// Evicts the least recently sampled processes beyond the limit and reports them.
    pub fn keep_seen(&mut self, seen: &Interval, mut forgotten: impl FnMut(&ProcessKey)) {
        self.intervals += 1;
        let seen: HashSet<ProcessKey> = seen.processes().collect();
        for key in &seen {
            if let Some(known) = self.known.get_mut(key) {
                known.seen = self.intervals;
            }
        }
        let surplus = self.known.len().saturating_sub(self.limit);
        if surplus == 0 {
            return;
        }
        let mut idle: Vec<(u64, ProcessKey)> = self
            .known
            .iter()
            .filter(|(key, _)| !seen.contains(key))
            .map(|(&key, known)| (known.seen, key))
            .collect();
        idle.sort_unstable_by_key(|&(seen, _)| seen);
        for (_, key) in idle.iter().take(surplus) {
            self.known.remove(key);
            forgotten(key);
        }
    }
}

/// Information about a process from /proc.
pub struct ProcfsInfo {
    pub name: String,
    pub path: Option<String>,
    pub cgroup: Option<String>,
    pub user: u32,
}

/// The parent's PID as this process sees it; 0 for a parent outside of its namespace.
pub fn parent(pid: u32) -> Option<u32> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let parent = status.lines().find_map(|line| line.strip_prefix("PPid:"))?;
    parent.trim().parse().ok()
}

impl ProcfsInfo {
    pub fn read(pid: u32) -> Option<Self> {
        let name = fs::read_to_string(format!("/proc/{pid}/comm")).ok()?;
        let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
        let users = status.lines().find_map(|line| line.strip_prefix("Uid:"))?;
        Some(Self {
            name: name.trim_end_matches('\n').to_owned(),
            path: executable_path(pid),
            cgroup: cgroup(pid),
            user: users.split_ascii_whitespace().next()?.parse().ok()?,
        })
    }
}

/// The kernel's 16-byte name as text.
pub fn text(name: &[u8; 16]) -> String {
    let end = name
        .iter()
        .position(|&byte| byte == 0)
        .unwrap_or(name.len());
    String::from_utf8_lossy(name.get(..end).unwrap_or(name)).into_owned()
}

fn cgroup(pid: u32) -> Option<String> {
    let text = fs::read_to_string(format!("/proc/{pid}/cgroup")).ok()?;
    cgroup_in(&text).map(str::to_owned)
}

/// Formats a creation time in milliseconds: the inputs are not more precise.
fn creation_time(unix_nanoseconds: u64) -> String {
    let milliseconds = i64::try_from(unix_nanoseconds / 1_000_000).unwrap_or(i64::MAX);
    timestamp(milliseconds).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_times_like_the_semantic_conventions() {
        assert_eq!(
            creation_time(1_700_558_734_853_999_999),
            "2023-11-21T09:25:34.853Z"
        );
    }

    #[test]
    fn evicts_the_least_recently_sampled_process() {
        let key = |pid| ProcessKey {
            pid,
            ..ProcessKey::default()
        };
        let mut processes = Processes::new(2);
        let seeing = |pids: &[u32]| {
            let mut interval = Interval::default();
            for &pid in pids {
                let sample = profcol_ebpf_loader::Sample {
                    process: key(pid),
                    ..Default::default()
                };
                let none = profcol_ebpf_loader::StackFrames::new(&[]);
                interval.add(&sample, None, none, none, &[]);
            }
            interval
        };
        for (met, seen, expected) in [
            (1, &[1][..], &[][..]),
            (2, &[1, 2], &[]),
            // The first process added is the most recently sampled.
            (3, &[1, 3], &[2]),
            // All three are in use.
            (4, &[1, 3, 4], &[]),
            (5, &[4, 5], &[1, 3]),
        ] {
            let process = Process {
                process: key(met),
                ..Process::default()
            };
            processes.add(&process, Names::default(), &[], 0);
            let mut forgotten = Vec::new();
            processes.keep_seen(&seeing(seen), |key| forgotten.push(key.pid));
            forgotten.sort_unstable();
            assert_eq!(forgotten, expected, "after {met}");
        }
    }
}
