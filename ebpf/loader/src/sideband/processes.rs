//! Tracks the code that each process has mapped, event by event.
//!
//! A sample identifies an image of a process by PID, number of execs and start time. Events report each exec and
//! fork, but not the number of execs before tracking began. The first sample of any process in a family provides
//! it: children inherit the count.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::{Arc, OnceLock};

use profcol_ebpf_common::file::FileId;
use profcol_ebpf_common::published::{Area, MAX_AREAS_SHIFT, ProcessImage};
use profcol_ebpf_common::record::ProcessKey;

use super::lease::Lease;

/// Delay before a process counts as exited: other threads may outlive the first one, and its samples may still be
/// in the ring buffer.
const EXIT_GRACE: u64 = 1_000_000_000;
/// Minimum time between rescans of one process.
pub const RESCAN_INTERVAL: u64 = 1_000_000_000;
/// Maximum number of uncertain intervals per process.
const MAX_UNCERTAIN: usize = 256;

#[derive(Default)]
pub struct Processes {
    by_pid: HashMap<u32, Process>,
    /// Processes whose first thread exited, and when to check them.
    left: VecDeque<(u64, u32)>,
    /// Processes whose published state is outdated.
    changed: Vec<u32>,
}

/// The current state of a process.
#[derive(Debug)]
pub struct Process {
    /// A time at which it certainly existed.
    pub alive_at: u64,
    /// The number of execs of the family's first process; its own execs are added.
    base: Arc<OnceLock<u32>>,
    execs: u32,
    executed: u64,
    pub code: Arc<Code>,
    is_changed: bool,
    /// The key under which it is published, and the time of its last publication.
    pub published: Option<ProcessImage>,
    pub published_at: u64,
    /// Intervals in which the programs had stale code for some of its addresses.
    uncertain: VecDeque<(u64, u64)>,
    pub looked: u64,
}

/// The code of an image, shared with forked processes.
#[derive(Debug, Default)]
pub struct Code {
    areas: BTreeMap<u64, Area>,
    /// The published allocation.
    pub lease: OnceLock<Lease>,
}

impl Clone for Code {
    /// A copy for changes, so without the published allocation.
    fn clone(&self) -> Self {
        Self {
            areas: self.areas.clone(),
            lease: OnceLock::new(),
        }
    }
}

/// The classification of a sample without a mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnmappedSample {
    /// The process's state was incomplete.
    Pending,
    /// The process's state was incomplete, and only a scan completes it.
    NeedsScan,
    /// There was no such mapping, unless its event was missed.
    Nowhere { rescan: bool },
}

impl Code {
    pub fn areas(&self) -> impl ExactSizeIterator<Item = &Area> {
        self.areas.values()
    }

    /// Whether it replaced other code; None if there is no room.
    fn insert(&mut self, area: Area) -> Option<bool> {
        // The published allocation is immutable.
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
            // Anonymous memory has no offset.
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
        // Inserting may split another area in two.
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
            published_at: 0,
            uncertain: VecDeque::new(),
            looked: alive_at,
        }
    }

    pub fn image(&self, pid: u32) -> Option<ProcessImage> {
        let exec = self.base.get()?.wrapping_add(self.execs);
        Some(ProcessImage { pid, exec })
    }

    /// Records that the current state is published.
    pub fn published(&mut self, image: ProcessImage, now: u64) {
        self.published = Some(image);
        self.published_at = now;
        for (_, until) in self.uncertain.iter_mut().rev() {
            if *until != u64::MAX {
                break;
            }
            *until = now;
        }
    }

    fn mark_uncertain(&mut self, from: u64) {
        if self.uncertain.len() >= MAX_UNCERTAIN
            && let Some((first, _)) = self.uncertain.pop_front()
            && let Some((next, _)) = self.uncertain.front_mut()
        {
            // Merges the two oldest, which errs on the safe side.
            *next = first;
        }
        self.uncertain.push_back((from, u64::MAX));
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

    /// Adds a scanned process with its code; discards its previous state.
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

    /// Replaces the code of a known process after a scan.
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

    /// Transfers the uncertain intervals to a new process with the same PID.
    fn take_over(&mut self, pid: u32, process: &mut Process) -> Option<ProcessImage> {
        let before = self.by_pid.remove(&pid)?;
        process.uncertain = before.uncertain;
        before.published
    }

    /// Adds a forked process; returns the published key of its predecessor with the same PID.
    pub fn forked(&mut self, pid: u32, parent: u32, time: u64) -> Option<ProcessImage> {
        let Some(from) = self.by_pid.get(&parent) else {
            // It is scanned when a sample needs it.
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

    /// False if there is no room for the area.
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

    /// Removes exited processes and passes their published keys to `take`.
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

    /// Removes all processes and passes their published keys to `take`.
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

    /// Processes to publish again. One with an unknown number of execs follows once it is known.
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

    /// Classifies a sample without a mapping. All events up to its time must have been processed.
    pub fn sample_unmapped(&mut self, key: &ProcessKey, time: u64) -> UnmappedSample {
        let Some(process) = self.by_pid.get_mut(&key.pid) else {
            return UnmappedSample::NeedsScan;
        };
        if process.alive_at < key.started {
            return UnmappedSample::NeedsScan;
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
                if process.published.is_some() && process.published_at <= time {
                    let rescan = process.looked + RESCAN_INTERVAL <= time;
                    UnmappedSample::Nowhere { rescan }
                } else {
                    UnmappedSample::Pending
                }
            }
            Some(_) => UnmappedSample::NeedsScan,
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

    /// Whether a sample at this time may have seen stale code.
    pub fn is_uncertain(&self, key: &ProcessKey, time: u64) -> bool {
        let Some(process) = self.by_pid.get(&key.pid) else {
            return false;
        };
        let mut uncertain = process.uncertain.iter().rev();
        uncertain.any(|&(from, until)| from <= time && time <= until)
    }
}

#[cfg(test)]
mod tests;
