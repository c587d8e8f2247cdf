//! Which code each process has mapped, followed event by event.
//!
//! A sample names an image of a process by the process's number, the count of its execs and its
//! start. Events tell of each exec and fork, but not the count that a process began with. That is
//! learned from the first sample of any process of a family: its children inherit the count.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::{Arc, OnceLock};

use profcol_ebpf_common::file::FileId;
use profcol_ebpf_common::published::{Area, MAX_AREAS_SHIFT, ProcessImage};
use profcol_ebpf_common::record::ProcessKey;

use super::publisher::Lease;

/// How long an end is thought over: of a thread that outlives the first one, and of samples that are
/// not taken out yet.
const EXIT_GRACE: u64 = 1_000_000_000;
/// Between two looks at all mappings of one process.
pub const RESCAN_INTERVAL: u64 = 1_000_000_000;
/// Changes that are remembered of one process.
const MAX_DOUBTS: usize = 256;

#[derive(Default)]
pub struct Processes {
    by_pid: HashMap<u32, Process>,
    /// Those whose first thread ended, and when that is looked at.
    left: VecDeque<(u64, u32)>,
    /// Those that are not published as they are.
    changed: Vec<u32>,
}

/// A process as it is now.
#[derive(Debug)]
pub struct Process {
    /// When it was certainly there.
    pub alive_at: u64,
    /// How often the family's first process had executed; its own execs come on top.
    base: Arc<OnceLock<u32>>,
    execs: u32,
    executed: u64,
    pub code: Arc<Code>,
    is_changed: bool,
    /// Under which name the programs find it, and since when as it is now.
    pub published: Option<ProcessImage>,
    pub shown_since: u64,
    /// From when to when the programs had the wrong code for some of its addresses.
    doubts: VecDeque<(u64, u64)>,
    pub looked: u64,
}

/// The code of an image; processes that one forks share its own.
#[derive(Debug, Default)]
pub struct Code {
    areas: BTreeMap<u64, Area>,
    /// Where it is published.
    pub lease: OnceLock<Lease>,
}

impl Clone for Code {
    /// To be changed, so it is not what is published.
    fn clone(&self) -> Self {
        Self {
            areas: self.areas.clone(),
            lease: OnceLock::new(),
        }
    }
}

/// What a sample without a mapping is to be taken for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnmappedSample {
    /// Its process was not known well enough.
    Pending,
    /// The same, and it is to be looked at.
    Look,
    /// There was no such mapping; perhaps one that no event told of.
    Nowhere { rescan: bool },
}

impl Code {
    pub fn areas(&self) -> impl ExactSizeIterator<Item = &Area> {
        self.areas.values()
    }

    /// Whether it took the place of other code; None where there is no room for it.
    fn insert(&mut self, area: Area) -> Option<bool> {
        // What is published stays as it is.
        self.lease.take();
        let delta = |area: &Area| area.offset.wrapping_sub(area.start);
        let mut replaces = false;
        let overlapping: Vec<u64> = self
            .areas
            .range(..area.end)
            .rev()
            .take_while(|(_, other)| other.end > area.start)
            .map(|(&start, _)| start)
            .collect();
        for start in overlapping {
            let Some(other) = self.areas.remove(&start) else {
                continue;
            };
            // Of memory without a file no offset is told.
            let is_same = other.id == area.id
                && (delta(&other) == delta(&area) || area.id == FileId::default());
            replaces |= !is_same;
            if other.start < area.start {
                let before = Area {
                    end: area.start,
                    ..other
                };
                self.areas.insert(before.start, before);
            }
            if other.end > area.end {
                let behind = Area {
                    start: area.end,
                    offset: other.offset.wrapping_add(area.end - other.start),
                    ..other
                };
                self.areas.insert(behind.start, behind);
            }
        }
        // It may have cut another one in two.
        if self.areas.len() + 1 >= 1 << MAX_AREAS_SHIFT {
            return None;
        }
        self.areas.insert(area.start, area);
        Some(replaces)
    }
}

impl Process {
    fn new(alive_at: u64) -> Self {
        Self {
            alive_at,
            base: Arc::default(),
            execs: 0,
            executed: 0,
            code: Arc::default(),
            is_changed: false,
            published: None,
            shown_since: 0,
            doubts: VecDeque::new(),
            looked: alive_at,
        }
    }

    pub fn image(&self, pid: u32) -> Option<ProcessImage> {
        let exec = self.base.get()?.wrapping_add(self.execs);
        Some(ProcessImage { pid, exec })
    }

    /// The programs have it as it is.
    pub fn published(&mut self, image: ProcessImage, now: u64) {
        self.published = Some(image);
        self.shown_since = now;
        for (_, until) in self.doubts.iter_mut().rev() {
            if *until != u64::MAX {
                break;
            }
            *until = now;
        }
    }

    fn mark_uncertain(&mut self, from: u64) {
        if self.doubts.len() >= MAX_DOUBTS
            && let Some((first, _)) = self.doubts.pop_front()
            && let Some((next, _)) = self.doubts.front_mut()
        {
            // Rather too much doubt than too little.
            *next = first;
        }
        self.doubts.push_back((from, u64::MAX));
    }
}

impl Processes {
    pub fn get(&self, pid: u32) -> Option<&Process> {
        self.by_pid.get(&pid)
    }

    pub fn get_mut(&mut self, pid: u32) -> Option<&mut Process> {
        self.by_pid.get_mut(&pid)
    }

    pub fn len(&self) -> usize {
        self.by_pid.len()
    }

    /// A process that was found with this code; whatever was known of it is not relied on.
    pub fn found(
        &mut self,
        pid: u32,
        now: u64,
        areas: impl IntoIterator<Item = Area>,
    ) -> Option<ProcessImage> {
        let mut process = Process::new(now);
        let published = self.take_over(pid, &mut process);
        self.by_pid.insert(pid, process);
        self.refresh(pid, now, areas);
        published
    }

    /// All code of a process that is known.
    pub fn refresh(&mut self, pid: u32, now: u64, areas: impl IntoIterator<Item = Area>) {
        let Some(process) = self.by_pid.get_mut(&pid) else {
            return;
        };
        process.looked = now;
        let mut code = Code::default();
        for area in areas {
            code.insert(area);
        }
        if code.areas == process.code.areas && process.published.is_some() {
            return;
        }
        process.code = Arc::new(code);
        if process.published.is_some() {
            process.mark_uncertain(now.saturating_sub(RESCAN_INTERVAL));
        }
        self.change(pid);
    }

    /// What goes over to another process with the same number: doubts about samples.
    fn take_over(&mut self, pid: u32, process: &mut Process) -> Option<ProcessImage> {
        let before = self.by_pid.remove(&pid)?;
        process.doubts = before.doubts;
        before.published
    }

    /// A new process; returns under which name one with the same number was shown.
    pub fn forked(&mut self, pid: u32, parent: u32, time: u64) -> Option<ProcessImage> {
        let Some(from) = self.by_pid.get(&parent) else {
            // It is looked at when a sample needs it.
            return self.by_pid.remove(&pid).and_then(|before| before.published);
        };
        let mut process = Process {
            base: Arc::clone(&from.base),
            execs: from.execs,
            code: Arc::clone(&from.code),
            ..Process::new(time)
        };
        let published = self.take_over(pid, &mut process);
        self.by_pid.insert(pid, process);
        self.change(pid);
        published
    }

    pub fn executed(&mut self, pid: u32, time: u64) {
        if let Some(process) = self.by_pid.get_mut(&pid) {
            process.execs = process.execs.wrapping_add(1);
            process.executed = time;
            process.code = Arc::default();
            self.change(pid);
        }
    }

    /// False where it found no room.
    pub fn mapped(&mut self, pid: u32, time: u64, area: Area) -> bool {
        let Some(process) = self.by_pid.get_mut(&pid) else {
            return true;
        };
        let inserted = Arc::make_mut(&mut process.code).insert(area);
        if inserted == Some(true) && process.published.is_some() {
            process.mark_uncertain(time);
        }
        self.change(pid);
        inserted.is_some()
    }

    pub fn left(&mut self, pid: u32, time: u64) {
        if self.by_pid.contains_key(&pid) {
            self.left.push_back((time + EXIT_GRACE, pid));
        }
    }

    /// Forgets those that are gone, and hands out under which names they were shown.
    pub fn forget_gone(
        &mut self,
        now: u64,
        is_there: impl Fn(u32) -> bool,
        mut take: impl FnMut(ProcessImage),
    ) {
        while let Some(&(due, pid)) = self.left.front()
            && due <= now
        {
            self.left.pop_front();
            let is_new = |process: &Process| process.alive_at + EXIT_GRACE > due;
            if self.by_pid.get(&pid).is_none_or(is_new) {
                continue;
            }
            if is_there(pid) {
                self.left.push_back((now + EXIT_GRACE * 10, pid));
            } else if let Some(ProcessImage { pid, exec }) = self
                .by_pid
                .remove(&pid)
                .and_then(|process| process.published)
            {
                take(ProcessImage { pid, exec });
            }
        }
    }

    /// Forgets all, and hands out under which names they were shown.
    pub fn forget_all(&mut self, mut take: impl FnMut(ProcessImage)) {
        for (_, process) in self.by_pid.drain() {
            process.published.into_iter().for_each(&mut take);
        }
        self.changed.clear();
        self.left.clear();
    }

    fn change(&mut self, pid: u32) {
        if let Some(process) = self.by_pid.get_mut(&pid)
            && !std::mem::replace(&mut process.is_changed, true)
        {
            self.changed.push(pid);
        }
    }

    /// Those that are to be shown anew. One whose count of execs is not known comes when it is.
    pub fn take_changed(&mut self) -> Vec<u32> {
        let changed = std::mem::take(&mut self.changed);
        let mut ready = Vec::with_capacity(changed.len());
        for pid in changed {
            if let Some(process) = self.by_pid.get_mut(&pid) {
                process.is_changed = false;
                if process.base.get().is_some() {
                    ready.push(pid);
                }
            }
        }
        ready
    }

    /// A sample at this time found no mapping. All events up to then are known.
    pub fn sample_unmapped(&mut self, key: &ProcessKey, time: u64) -> UnmappedSample {
        let Some(process) = self.by_pid.get_mut(&key.pid) else {
            return UnmappedSample::Look;
        };
        if process.alive_at < key.started {
            return UnmappedSample::Look;
        }
        if process.executed > time {
            return UnmappedSample::Pending;
        }
        match process.base.get() {
            None => {
                let base = key.exec.wrapping_sub(process.execs);
                let family = Arc::clone(&process.base);
                if family.set(base).is_ok() {
                    self.change_family(&family);
                }
                UnmappedSample::Pending
            }
            Some(base) if base.wrapping_add(process.execs) == key.exec => {
                if process.published.is_some() && process.shown_since <= time {
                    let rescan = process.looked + RESCAN_INTERVAL <= time;
                    UnmappedSample::Nowhere { rescan }
                } else {
                    UnmappedSample::Pending
                }
            }
            Some(_) => UnmappedSample::Look,
        }
    }

    fn change_family(&mut self, family: &Arc<OnceLock<u32>>) {
        let of_family = |process: &Process| Arc::ptr_eq(&process.base, family);
        let pids: Vec<u32> = self
            .by_pid
            .iter()
            .filter(|(_, process)| of_family(process))
            .map(|(&pid, _)| pid)
            .collect();
        for pid in pids {
            self.change(pid);
        }
    }

    /// Whether a sample at this time may have been given code that was not there any more.
    pub fn is_uncertain(&self, key: &ProcessKey, time: u64) -> bool {
        let Some(process) = self.by_pid.get(&key.pid) else {
            return false;
        };
        let mut doubts = process.doubts.iter().rev();
        doubts.any(|&(from, until)| from <= time && time <= until)
    }
}

#[cfg(test)]
mod tests;
