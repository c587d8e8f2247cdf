//! Names for generated code, which a runtime writes down for whoever profiles it.
//!
//! There are two ways: `/tmp/perf-<pid>.map`, lines of text, and a jitdump, binary records in a file
//! that the process maps so that it can be found. Both only grow while the process lives, and are
//! read on from where they ended the last time. They are opened at the process's first sample in
//! such code, so that they can still be read when it is gone.
//!
//! The files are the process's own and may say anything. So they must belong to its user or to
//! root, paths are followed inside its own root alone, and what is kept of them is bounded.

mod jitdump;
mod names;
mod perf_map;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::fs::{self, File};
use std::hash::Hash;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, openat, openat2};

use self::jitdump::Jitdump;
pub use self::names::{GeneratedCode, JitNames};
use self::perf_map::PerfMap;

/// Processes whose names are kept; those that were not sampled for longest are forgotten first.
const MAX_PROCESSES: usize = 128;

/// A process that has no file yet is looked at again after this long, then after twice that.
const FIRST_WAIT: Duration = Duration::from_millis(500);
const MAX_WAIT: Duration = Duration::from_secs(30);

/// Bytes that are read in one round, of all files together; the rest is left to the next round.
const ROUND: usize = 32 << 20;

/// The processes that run generated code, by what tells one from another that had its number before.
pub struct JitProcesses<K> {
    known: HashMap<K, JitProcess>,
    /// Of all processes.
    most_bytes: usize,
}

struct JitProcess {
    pid: u32,
    sources: Vec<Source>,
    names: JitNames,
    used: Instant,
    look: Instant,
    wait: Duration,
}

enum Source {
    PerfMap(PerfMap),
    Jitdump(Jitdump),
}

#[derive(Debug, thiserror::Error)]
enum Unusable {
    #[error("it cannot be read: {0}")]
    Io(#[from] io::Error),
    #[error("it belongs to user {0}, neither the process's nor root")]
    Owner(u32),
    #[error("not a regular file")]
    NoFile,
    #[error("bad magic number")]
    Format,
}

impl From<rustix::io::Errno> for Unusable {
    fn from(error: rustix::io::Errno) -> Self {
        Self::Io(error.into())
    }
}

impl<K: Copy + Eq + Hash> JitProcesses<K> {
    /// Keeps names of so many bytes, of one process no more than half of them.
    pub fn new(most_bytes: usize) -> Self {
        Self {
            known: HashMap::new(),
            most_bytes,
        }
    }

    /// A sample was in generated code of this process.
    pub fn meet(&mut self, process: K, pid: u32) {
        let now = Instant::now();
        if self.known.len() >= MAX_PROCESSES && !self.known.contains_key(&process) {
            self.forget_one();
        }
        let most_bytes = self.most_bytes / 2;
        let known = self.known.entry(process).or_insert_with(|| JitProcess {
            pid,
            sources: Vec::new(),
            names: JitNames::new(most_bytes),
            used: now,
            look: now,
            wait: FIRST_WAIT,
        });
        known.used = now;
        if known.sources.is_empty() && now >= known.look {
            known.sources = find(pid);
            known.look = now + known.wait;
            known.wait = (known.wait * 2).min(MAX_WAIT);
        }
    }

    /// Reads what was added to the files of the processes that were met.
    pub fn refresh(&mut self) {
        let mut left = ROUND;
        for known in self.known.values_mut() {
            known.refresh(&mut left);
        }
        let mut bytes: usize = self.known.values().map(|known| known.names.bytes()).sum();
        while bytes > self.most_bytes {
            bytes -= self.forget_one();
        }
    }

    pub fn names(&self, process: &K) -> Option<&JitNames> {
        let known = self.known.get(process)?;
        (!known.names.is_empty()).then_some(&known.names)
    }

    /// Says how many bytes it gave up.
    fn forget_one(&mut self) -> usize {
        let oldest = self.known.iter().min_by_key(|(_, known)| known.used);
        let oldest = oldest.map(|(&process, _)| process);
        let forgotten = oldest.and_then(|process| self.known.remove(&process));
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

/// The files of a process, as far as there are any.
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

/// Who the process is, as its files have it.
struct Owner {
    user: u32,
    /// In its own PID namespace.
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
            // The real user, then the effective one.
            user: values("Uid:")?.nth(1)?.parse().ok()?,
            pid: values("NSpid:")?.next_back()?.parse().ok()?,
        })
    }

    fn check(&self, file: File) -> Result<File, Unusable> {
        let found = file.metadata()?;
        if !found.is_file() {
            return Err(Unusable::NoFile);
        }
        if found.uid() != self.user && found.uid() != 0 {
            return Err(Unusable::Owner(found.uid()));
        }
        Ok(file)
    }
}

/// No link leads out of the process's own root, and what is no file does not make the caller wait.
fn open_perf_map(pid: u32, owner: &Owner) -> Result<File, Unusable> {
    let own = OFlags::PATH | OFlags::CLOEXEC;
    let root = openat(CWD, format!("/proc/{pid}/root"), own, Mode::empty())?;
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
    let path = format!("tmp/perf-{}.map", owner.pid);
    let found = openat2(root, path, flags, Mode::empty(), resolve)?;
    owner.check(found.into())
}

fn open_jitdump(pid: u32, owner: &Owner) -> Result<Option<Jitdump>, Unusable> {
    let maps = fs::read_to_string(format!("/proc/{pid}/maps"))?;
    let Some(range) = maps.lines().find_map(jitdump_mapping) else {
        return Ok(None);
    };
    let file = owner.check(File::open(format!("/proc/{pid}/map_files/{range}"))?)?;
    Jitdump::open(file).map(Some)
}

/// The range of a mapping of a file `jit-<pid>.dump`.
fn jitdump_mapping(line: &str) -> Option<String> {
    let mut words = line.split_ascii_whitespace();
    let (start, end) = words.next()?.split_once('-')?;
    let name = Path::new(words.nth(4)?).file_name()?.to_str()?;
    let number = name.strip_prefix("jit-")?.strip_suffix(".dump")?;
    // The kernel names the link without leading zeros, unlike /proc/PID/maps.
    let address = |text| u64::from_str_radix(text, 16).ok();
    let is_number = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then_some(())?;
    Some(format!("{:x}-{:x}", address(start)?, address(end)?))
}
