//! What is known of processes: what the kernel told at the first sample, and what /proc still had.

use std::collections::{HashMap, HashSet, VecDeque};
use std::fs;

use profcol_ebpf_host::{Process, ProcessKey};

use super::interval::Interval;

pub struct Processes {
    known: HashMap<ProcessKey, Known>,
    /// In the order in which they were met.
    order: VecDeque<ProcessKey>,
    limit: usize,
    users: HashMap<u32, String>,
}

#[derive(Clone, Debug, Default)]
pub struct Known {
    pub name: String,
    pub parent: u32,
    /// The name of its user, or the number where there is no name.
    pub owner: String,
    /// The number of its executable's file; 0 is none.
    pub executable: u32,
    /// The executable, where /proc still had it.
    pub path: Option<String>,
    pub cgroup: Option<String>,
}

impl Processes {
    pub fn new(limit: usize) -> Self {
        Self {
            known: HashMap::new(),
            order: VecDeque::new(),
            limit,
            users: users(),
        }
    }

    pub fn add(&mut self, process: &Process) {
        let pid = process.process.pid;
        let known = Known {
            name: text(&process.name),
            parent: process.parent,
            owner: match self.users.get(&process.user) {
                Some(name) => name.clone(),
                None => process.user.to_string(),
            },
            executable: process.executable,
            path: executable_path(pid),
            cgroup: cgroup(pid),
        };
        if self.known.insert(process.process, known).is_none() {
            self.order.push_back(process.process);
        }
    }

    pub fn get(&self, key: &ProcessKey) -> Option<&Known> {
        self.known.get(key)
    }

    /// Forgets the processes that were met first, as long as there are too many, but none that was
    /// seen just now.
    pub fn keep_seen(&mut self, seen: &Interval) {
        if self.order.len() <= self.limit {
            return;
        }
        let seen: HashSet<ProcessKey> = seen
            .observations()
            .iter()
            .map(|(seen, _)| seen.process)
            .collect();
        let mut surplus = self.order.len() - self.limit;
        let known = &mut self.known;
        self.order.retain(|key| {
            let forget = surplus > 0 && !seen.contains(key);
            if forget {
                surplus -= 1;
                known.remove(key);
            }
            !forget
        });
    }
}

/// What /proc tells of a process.
pub struct Found {
    pub name: String,
    pub path: Option<String>,
    pub cgroup: Option<String>,
    pub user: u32,
}

/// The number of the parent, as this process sees it; 0 is one that it does not see.
pub fn parent(pid: u32) -> Option<u32> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let parent = status.lines().find_map(|line| line.strip_prefix("PPid:"))?;
    parent.trim().parse().ok()
}

impl Found {
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

/// A name in the kernel's sixteen bytes.
pub fn text(name: &[u8; 16]) -> String {
    let end = name
        .iter()
        .position(|&byte| byte == 0)
        .unwrap_or(name.len());
    String::from_utf8_lossy(name.get(..end).unwrap_or(name)).into_owned()
}

fn executable_path(pid: u32) -> Option<String> {
    let path = fs::read_link(format!("/proc/{pid}/exe")).ok()?;
    let path = path.to_string_lossy();
    Some(path.strip_suffix(" (deleted)").unwrap_or(&path).to_owned())
}

/// The process's path in the unified hierarchy, or else in that of the first controller.
fn cgroup(pid: u32) -> Option<String> {
    let text = fs::read_to_string(format!("/proc/{pid}/cgroup")).ok()?;
    let path = |line: &str| line.splitn(3, ':').nth(2).map(str::to_owned);
    let unified = text
        .lines()
        .find(|line| line.starts_with("0::"))
        .and_then(path);
    unified
        .filter(|path| path != "/")
        .or_else(|| text.lines().filter_map(path).find(|path| path != "/"))
}

/// The names of this host's users.
fn users() -> HashMap<u32, String> {
    let text = fs::read_to_string("/etc/passwd").unwrap_or_default();
    let user = |line: &str| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        Some((fields.nth(1)?.parse().ok()?, name.to_owned()))
    };
    text.lines().filter_map(user).collect()
}
