//! Symbols of JIT-compiled code, which runtimes write for profilers.
//!
//! There are two formats: `/tmp/perf-<pid>.map`, text lines, and jitdump, binary records in a file that the process
//! maps so that profilers can find it. Both only grow during the life of the process, so reads continue where the last
//! one ended. They are opened at the process's first sample in such code, so that they can still be read after its
//! exit.
//!
//! The files are untrusted. They must be owned by the process's user or root, paths are resolved within the process's
//! root, and the memory for their contents is bounded.

mod jitdump;
mod names;
mod perf_map;
#[cfg(test)]
mod tests;
mod unusable;

use std::collections::HashMap;
use std::fs::{self, File};
use std::hash::Hash;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use profcol_elf::{Mapping, mappings, open_regular};

use self::jitdump::Jitdump;
pub use self::names::{GeneratedCode, JitNames};
use self::perf_map::PerfMap;
use self::unusable::Unusable;

/// Limit of processes; the least recently sampled one is evicted first.
const MAX_PROCESSES: usize = 128;

/// A process without a file is checked again after this time, doubling up to the maximum.
const FIRST_WAIT: Duration = Duration::from_millis(500);
const MAX_WAIT: Duration = Duration::from_secs(30);

/// Bytes read per refresh from all files together; the rest is left to the next refresh.
const ROUND: usize = 32 << 20;

/// Processes with JIT-compiled code, by a key that distinguishes them from later ones with the same PID.
pub struct JitProcesses<K> {
    processes: HashMap<K, JitProcess>,
    /// Total of all processes.
    max_bytes: usize,
}

struct JitProcess {
    pid: u32,
    sources: Vec<Source>,
    names: JitNames,
    used: Instant,
    next_check: Instant,
    wait: Duration,
}

enum Source {
    PerfMap(PerfMap),
    Jitdump(Jitdump),
}

impl<K: Copy + Eq + Hash> JitProcesses<K> {
    /// Stores names up to this size in total; a single process may use half of it.
    pub fn new(max_bytes: usize) -> Self {
        Self {
            processes: HashMap::new(),
            max_bytes,
        }
    }

    /// Records a sample in JIT-compiled code of this process.
    pub fn observe(&mut self, process: K, pid: u32) {
        let now = Instant::now();
        if self.processes.len() >= MAX_PROCESSES && !self.processes.contains_key(&process) {
            self.forget_one();
        }
        let max_bytes = self.max_bytes / 2;
        let jit = self.processes.entry(process).or_insert_with(|| JitProcess {
            pid,
            sources: Vec::new(),
            names: JitNames::new(max_bytes),
            used: now,
            next_check: now,
            wait: FIRST_WAIT,
        });
        jit.used = now;
        if jit.sources.is_empty() && now >= jit.next_check {
            jit.sources = find(pid);
            jit.next_check = now + jit.wait;
            jit.wait = (jit.wait * 2).min(MAX_WAIT);
        }
    }

    /// Reads new data from the files of all observed processes.
    pub fn refresh(&mut self) {
        let mut left = ROUND;
        for jit in self.processes.values_mut() {
            jit.refresh(&mut left);
        }
        let mut bytes: usize = self.processes.values().map(|jit| jit.names.bytes()).sum();
        while bytes > self.max_bytes {
            bytes -= self.forget_one();
        }
    }

    pub fn names(&self, process: &K) -> Option<&JitNames> {
        let jit = self.processes.get(process)?;
        (!jit.names.is_empty()).then_some(&jit.names)
    }

    /// Returns the number of bytes freed.
    fn forget_one(&mut self) -> usize {
        let oldest = self.processes.iter().min_by_key(|(_, jit)| jit.used);
        let oldest = oldest.map(|(&process, _)| process);
        let forgotten = oldest.and_then(|process| self.processes.remove(&process));
        forgotten.map_or(0, |forgotten| forgotten.names.bytes())
    }
}

impl JitProcess {
    fn refresh(&mut self, left: &mut usize) {
        let Self {
            pid,
            sources,
            names,
            ..
        } = self;
        for source in sources {
            let read = match source {
                Source::PerfMap(map) => map.read_on(names, left),
                Source::Jitdump(dump) => dump.read_on(names, left),
            };
            if let Err(error) = read {
                tracing::debug!(pid, %error, "failed to read JIT symbols");
            }
        }
    }
}

/// The files of a process, if any.
fn find(pid: u32) -> Vec<Source> {
    let Some(owner) = Owner::read(pid) else {
        return Vec::new();
    };
    let mut sources = Vec::new();
    match open_perf_map(pid, &owner) {
        Ok(file) => sources.push(Source::PerfMap(PerfMap::new(file))),
        Err(Unusable::Io(error)) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => tracing::debug!(pid, %error, "ignoring a perf map"),
    }
    match open_jitdump(pid, &owner) {
        Ok(Some(dump)) => sources.push(Source::Jitdump(dump)),
        Ok(None) => {}
        Err(error) => tracing::debug!(pid, %error, "ignoring a jitdump"),
    }
    sources
}

/// The owner of the process, from its status files.
struct Owner {
    user: u32,
    /// The PID in the process's own namespace.
    pid: u32,
}

impl Owner {
    fn read(pid: u32) -> Option<Self> {
        Self::parse(&fs::read_to_string(format!("/proc/{pid}/status")).ok()?)
    }

    fn parse(status: &str) -> Option<Self> {
        let values = |key: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(key))?;
            Some(line.split_ascii_whitespace())
        };
        Some(Self {
            // The real uid, then the effective one.
            user: values("Uid:")?.nth(1)?.parse().ok()?,
            pid: values("NSpid:")?.next_back()?.parse().ok()?,
        })
    }

    fn check(&self, file: File) -> Result<File, Unusable> {
        let metadata = file.metadata()?;
        if !metadata.is_file() {
            return Err(Unusable::NoFile);
        }
        if metadata.uid() != self.user && metadata.uid() != 0 {
            return Err(Unusable::Owner(metadata.uid()));
        }
        Ok(file)
    }
}

fn open_perf_map(pid: u32, owner: &Owner) -> Result<File, Unusable> {
    let root = format!("/proc/{pid}/root");
    let path = format!("tmp/perf-{}.map", owner.pid);
    owner.check(open_regular(Path::new(&root), Path::new(&path))?)
}

fn open_jitdump(pid: u32, owner: &Owner) -> Result<Option<Jitdump>, Unusable> {
    let process = PathBuf::from(format!("/proc/{pid}"));
    let mut mappings = mappings(&process)?.map_while(Result::ok);
    let Some(mapping) = mappings.find(is_mapped_jitdump) else {
        return Ok(None);
    };
    let file = owner.check(mapping.open(&process)?)?;
    Jitdump::open(file).map(Some)
}

/// Whether its file is `jit-<pid>.dump`.
fn is_mapped_jitdump(mapping: &Mapping) -> bool {
    let number = mapping.name().and_then(|name| name.strip_prefix("jit-"));
    let number = number.and_then(|rest| rest.strip_suffix(".dump"));
    number.is_some_and(|it| !it.is_empty() && it.bytes().all(|byte| byte.is_ascii_digit()))
}
