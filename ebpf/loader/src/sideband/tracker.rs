//! Processes events and /proc scans in order, and publishes the resulting mappings.

use std::collections::{HashMap, VecDeque};
use std::fs::File;
use std::os::fd::RawFd;
use std::path::Path;
use std::time::Duration;

use profcol_ebpf_common::file::FileId;
use profcol_ebpf_common::published::Area;
use profcol_ebpf_common::reason::{EndReason, REASONS};
use profcol_ebpf_common::record::Sample;

use super::origins::{self, Origins};
use super::processes::{Processes, UnmappedSample};
use super::publisher::Publisher;
use super::records::{Kind, Mapped, ProcessEvent};
use super::rings::{self, Drained, MAX_EVENT_DELAY, Rings};
use super::scan;
use crate::events;
use crate::sys;

/// How often to check for new CPUs and exited processes.
const CPU_POLL_INTERVAL: Duration = Duration::from_secs(2);
/// Maximum number of uncertain intervals; each loss of events adds one.
const MAX_UNCERTAIN: usize = 64;

fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// Counters of the mapping tracker.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MappingCounts {
    /// Events lost because their ring was full; a loss triggers a rescan of all processes.
    pub lost_events: u64,
    /// Changes that could not be published for lack of room.
    pub no_room: u64,
}

pub struct Tracker {
    rings: Rings,
    /// Events that are not processed yet.
    waiting: Vec<ProcessEvent>,
    processes: Processes,
    origins: Origins,
    publisher: Publisher,
    counts: MappingCounts,
    /// Per end reason, the difference to the programs' count of samples.
    corrections: [i64; REASONS],
    /// When the rings were last drained, and CPUs last checked.
    drained: u64,
    followed: u64,
    /// Processes to rescan, and whether the current state of each is still valid.
    rescans: HashMap<u32, bool>,
    /// The time since which events may be missing.
    uncertain_since: Option<u64>,
    /// Past intervals with missing events.
    uncertain: VecDeque<(u64, u64)>,
}

impl Tracker {
    pub fn new(rings: Rings, publisher: Publisher) -> Self {
        let now = sys::since_boot();
        Self {
            rings,
            waiting: Vec::new(),
            processes: Processes::default(),
            origins: Origins::default(),
            publisher,
            counts: MappingCounts::default(),
            corrections: [0; REASONS],
            drained: now,
            followed: now,
            rescans: HashMap::new(),
            uncertain_since: Some(now),
            uncertain: VecDeque::new(),
        }
    }

    /// The files to poll for events, and the timeout.
    pub fn waits_for(&self) -> (Vec<RawFd>, Duration) {
        let timeout = if self.waiting.is_empty() {
            CPU_POLL_INTERVAL
        } else {
            MAX_EVENT_DELAY
        };
        (self.rings.files().collect(), timeout)
    }

    pub fn counts(&self) -> MappingCounts {
        self.counts
    }

    pub fn corrections(&self) -> [i64; REASONS] {
        self.corrections
    }

    pub fn path(&self, id: &FileId) -> Option<&Path> {
        self.origins.path(id)
    }

    /// Processes events up to a moment ago, and periodically checks for new CPUs and exited processes.
    pub fn follow(&mut self) {
        let now = sys::since_boot();
        if now >= self.followed + nanoseconds(CPU_POLL_INTERVAL) {
            let before = std::mem::replace(&mut self.followed, now);
            if let Ok(online) = events::online() {
                let mut drained = Drained::default();
                if self.rings.follow(&online, &mut drained) {
                    self.uncertain_since.get_or_insert(before);
                }
                self.take(drained);
            }
            let Self {
                processes,
                publisher,
                ..
            } = self;
            processes.forget_gone(sys::since_boot(), scan::is_there, |image| {
                publisher.unpublish(&image)
            });
        }
        self.advance(sys::since_boot().saturating_sub(nanoseconds(MAX_EVENT_DELAY)));
    }

    fn take(&mut self, drained: Drained) {
        self.waiting.extend(drained.events);
        if drained.lost > 0 {
            tracing::warn!(
                lost = drained.lost,
                "Mapping events were lost; rescanning all processes."
            );
            self.counts.lost_events += drained.lost;
            self.uncertain_since.get_or_insert(self.drained);
        }
    }

    fn drain(&mut self) {
        let mut drained = Drained::default();
        let now = sys::since_boot();
        self.rings.drain(&mut drained);
        self.take(drained);
        self.drained = now;
    }

    /// Processes all events up to this time.
    pub fn advance(&mut self, until: u64) {
        self.drain();
        self.waiting.sort_by_key(|event| event.time);
        let count = self.waiting.partition_point(|event| event.time <= until);
        let ready: Vec<ProcessEvent> = self.waiting.drain(..count).collect();
        self.origins.begin();
        if let Some(since) = self.uncertain_since.take() {
            self.rescan_all(since);
        }
        for event in ready {
            self.apply(event);
        }
        self.rescan_requested();
    }

    /// Rescans the processes that samples requested.
    pub fn rescan_requested(&mut self) {
        for (pid, is_known) in std::mem::take(&mut self.rescans) {
            self.rescan(pid, is_known);
        }
        self.publish();
    }

    fn apply(&mut self, event: ProcessEvent) {
        let ProcessEvent { time, pid, kind } = event;
        match kind {
            Kind::Mapped(mapped) => {
                if self.processes.get(pid).is_none() {
                    return;
                }
                let area = self.area(pid, &mapped);
                if !self.processes.mapped(pid, time, area) {
                    self.counts.no_room += 1;
                }
            }
            Kind::Executed => self.processes.executed(pid, time),
            Kind::Forked { parent } => {
                if let Some(image) = self.processes.forked(pid, parent, time) {
                    self.publisher.unpublish(&image);
                }
            }
            Kind::Left => self.processes.left(pid, time),
        }
    }

    fn area(&mut self, pid: u32, mapped: &Mapped) -> Area {
        Area {
            start: mapped.start,
            end: mapped.end,
            offset: mapped.offset,
            id: self.origins.identify(pid, mapped),
        }
    }

    fn rescan_all(&mut self, since: u64) {
        let Self {
            processes,
            publisher,
            ..
        } = self;
        processes.forget_all(|image| publisher.unpublish(&image));
        self.origins.forget_inodes();
        // From now on the programs no longer see earlier mappings.
        if self.uncertain.len() >= MAX_UNCERTAIN {
            self.uncertain.pop_front();
        }
        self.uncertain.push_back((since, sys::since_boot()));
        for pid in scan::processes() {
            self.rescan(pid, false);
        }
        tracing::debug!(
            processes = self.processes.len(),
            "rescanned the mappings of all processes"
        );
    }

    /// Scans a process in /proc. For one without mappings yet, events will follow.
    fn rescan(&mut self, pid: u32, is_known: bool) {
        let now = sys::since_boot();
        let code = match scan::code(pid) {
            Some(code) => code,
            None if scan::is_there(pid) => Vec::new(),
            None => return,
        };
        let areas: Vec<Area> = code
            .into_iter()
            .map(|mut mapped| {
                self.complete(pid, &mut mapped);
                self.area(pid, &mapped)
            })
            .collect();
        if is_known {
            self.processes.refresh(pid, now, areas);
        } else if let Some(image) = self.processes.found(pid, now, areas) {
            self.publisher.unpublish(&image);
        }
    }

    /// Adds the generation of a file, which /proc lacks, from an event of our own mapping.
    fn complete(&mut self, pid: u32, mapped: &mut Mapped) {
        let Some(origin) = &mut mapped.origin else {
            return;
        };
        if let Some(known) = self.origins.by_inode(origin.device, origin.inode) {
            *origin = known;
            return;
        }
        if let Ok(file) = File::open(origins::link(pid, mapped))
            && let Ok(Some(found)) = rings::origin(&file)
        {
            mapped.origin = Some(found);
        }
    }

    fn publish(&mut self) {
        for pid in self.processes.take_changed() {
            let Some(process) = self.processes.get_mut(pid) else {
                continue;
            };
            let Some(image) = process.image(pid) else {
                continue;
            };
            if self.publisher.publish(image, process) {
                process.published(image, sys::since_boot());
            } else {
                process.published = None;
                self.counts.no_room += 1;
            }
        }
    }

    /// The reason to discard a sample's stack, if any.
    pub fn correct_reason(&mut self, sample: &Sample) -> Option<EndReason> {
        let reason = self.reason(sample)?;
        for (reason, more) in [(sample.end, -1), (reason as u32, 1)] {
            if let Some(count) = self.corrections.get_mut(reason as usize) {
                *count += more;
            }
        }
        Some(reason)
    }

    fn reason(&mut self, sample: &Sample) -> Option<EndReason> {
        let is_uncertain =
            |&(from, until): &(u64, u64)| from <= sample.time && sample.time <= until;
        let has_stack = sample.user_words > 0;
        if has_stack
            && (self.uncertain.iter().any(is_uncertain)
                || self.processes.is_uncertain(&sample.process, sample.time))
        {
            return Some(EndReason::MappingsChanging);
        }
        if sample.end != EndReason::MappingsPending as u32 {
            return None;
        }
        let pid = sample.process.pid;
        match self.processes.sample_unmapped(&sample.process, sample.time) {
            UnmappedSample::Pending => None,
            UnmappedSample::NeedsScan => {
                self.rescans.insert(pid, false);
                None
            }
            UnmappedSample::Nowhere { rescan } => {
                if rescan {
                    self.rescans.entry(pid).or_insert(true);
                }
                Some(EndReason::NoMapping)
            }
        }
    }
}
