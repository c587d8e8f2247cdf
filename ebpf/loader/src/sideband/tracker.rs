//! Takes in what events and /proc tell, in order, and publishes what came of it.

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
use super::records::{Event, Kind, Mapped};
use super::rings::{self, Drained, Rings};
use super::{MAX_EVENT_DELAY, MappingCounts, scan};
use crate::events;
use crate::sys;

/// How often CPUs and ends of processes are looked at.
const CPU_POLL_INTERVAL: Duration = Duration::from_secs(2);
/// Times that are remembered as unsure; there is one for each time that events were lost.
const MAX_UNCERTAIN: usize = 64;

fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

pub struct Tracker {
    rings: Rings,
    /// Not taken in yet.
    waiting: Vec<Event>,
    processes: Processes,
    origins: Origins,
    publisher: Publisher,
    counts: MappingCounts,
    /// How many samples more have each reason than the programs counted.
    corrections: [i64; REASONS],
    /// When the rings were emptied last, and when CPUs were looked for.
    drained: u64,
    followed: u64,
    /// Processes that are to be looked at, and whether what is known of each still holds.
    look_at: HashMap<u32, bool>,
    /// Since when something may have happened that no event told of.
    unsure_since: Option<u64>,
    /// From when to when that was.
    unsure: VecDeque<(u64, u64)>,
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
            look_at: HashMap::new(),
            unsure_since: Some(now),
            unsure: VecDeque::new(),
        }
    }

    /// The files that become readable when something happens, and how long to wait for that.
    pub fn waits_for(&self) -> (Vec<RawFd>, Duration) {
        let patience = if self.waiting.is_empty() {
            CPU_POLL_INTERVAL
        } else {
            MAX_EVENT_DELAY
        };
        (self.rings.files().collect(), patience)
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

    /// Takes in what happened up to a moment ago, and from time to time what is not told by events.
    pub fn follow(&mut self) {
        let now = sys::since_boot();
        if now >= self.followed + nanoseconds(CPU_POLL_INTERVAL) {
            let before = std::mem::replace(&mut self.followed, now);
            if let Ok(online) = events::online() {
                let mut drained = Drained::default();
                if self.rings.follow(&online, &mut drained) {
                    self.unsure_since.get_or_insert(before);
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
            self.unsure_since.get_or_insert(self.drained);
        }
    }

    fn drain(&mut self) {
        let mut drained = Drained::default();
        let now = sys::since_boot();
        self.rings.drain(&mut drained);
        self.take(drained);
        self.drained = now;
    }

    /// Takes in all that happened until this time.
    pub fn advance(&mut self, until: u64) {
        self.drain();
        self.waiting.sort_by_key(|event| event.time);
        let count = self.waiting.partition_point(|event| event.time <= until);
        let ready: Vec<Event> = self.waiting.drain(..count).collect();
        self.origins.begin();
        if let Some(since) = self.unsure_since.take() {
            self.rescan_all(since);
        }
        for event in ready {
            self.apply(event);
        }
        self.settle();
    }

    /// Acts on what samples told.
    pub fn settle(&mut self) {
        for (pid, is_known) in std::mem::take(&mut self.look_at) {
            self.rescan(pid, is_known);
        }
        self.publish();
    }

    fn apply(&mut self, event: Event) {
        let Event { time, pid, kind } = event;
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
        self.origins.forget_places();
        // From now on the programs find nothing that was published before.
        if self.unsure.len() >= MAX_UNCERTAIN {
            self.unsure.pop_front();
        }
        self.unsure.push_back((since, sys::since_boot()));
        for pid in scan::processes() {
            self.rescan(pid, false);
        }
        tracing::debug!(
            processes = self.processes.len(),
            "rescanned the mappings of all processes"
        );
    }

    /// Looks at a process in /proc. Of one that shows nothing, events will tell.
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

    /// /proc does not tell the generation of a file: an event of one's own does.
    fn complete(&mut self, pid: u32, mapped: &mut Mapped) {
        let Some(origin) = &mut mapped.origin else {
            return;
        };
        if let Some(known) = self.origins.at_place(origin.device, origin.inode) {
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

    /// The reason why a sample's stack is not to be believed, if there is one.
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
        let is_unsure = |&(from, until): &(u64, u64)| from <= sample.time && sample.time <= until;
        let has_stack = sample.user_words > 0;
        if has_stack
            && (self.unsure.iter().any(is_unsure)
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
            UnmappedSample::Look => {
                self.look_at.insert(pid, false);
                None
            }
            UnmappedSample::Nowhere { rescan } => {
                if rescan {
                    self.look_at.entry(pid).or_insert(true);
                }
                Some(EndReason::NoMapping)
            }
        }
    }
}
