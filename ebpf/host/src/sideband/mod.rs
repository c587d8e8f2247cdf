//! Mappings by the kernel's events, for kernels whose own tree of them cannot be read.
//!
//! ```text
//! a ring per CPU ─► events ─► processes ─► publisher ─► stretches of areas, which programs read
//! /proc, at start and where something was missed ─┘
//! ```
//!
//! Events come a little after what they tell of. A program that finds nothing says so, and it is
//! told apart here whether there was nothing. What it finds may not be there any more: a sample that
//! was taken between a change and its publication is doubted, and its stack is not believed.

mod events;
mod origins;
mod processes;
mod publisher;
mod rings;
mod scan;

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, PipeWriter};
use std::os::fd::{AsFd, AsRawFd};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{Builder as Thread, JoinHandle};
use std::time::{Duration, Instant};

use profcol_ebpf_common::file::FileId;
use profcol_ebpf_common::published::Area;
use profcol_ebpf_common::reason::{EndReason, REASONS};
use profcol_ebpf_common::record::Sample;

use self::events::{Event, Kind, Mapped};
use self::origins::Origins;
use self::processes::{Processes, Unmapped};
pub use self::publisher::Publisher;
use self::rings::{Drained, Rings};
use crate::sys;

/// An event is in its ring this long after its time at the latest.
const UNDER_WAY: Duration = Duration::from_millis(1);
/// What comes at once is taken in together.
const GATHER: Duration = Duration::from_millis(3);
/// How often CPUs and ends of processes are looked at.
const LOOK: Duration = Duration::from_secs(2);

#[derive(Debug, thiserror::Error)]
pub enum SideBandError {
    #[error("the kernel does not tell this process of mappings: {0}")]
    Rings(io::Error),
    #[error(
        "the kernel gives no more memory for events ({0}): raise `kernel.perf_event_mlock_kb` to 1024, \
         or the limit of locked memory"
    )]
    Memory(io::Error),
    #[error("cannot tell which CPUs there are: {0}")]
    Cpus(io::Error),
    #[error("cannot start the thread that follows mappings: {0}")]
    Thread(io::Error),
}

/// What happened while mappings were followed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MappingCounts {
    /// Events that found no room in their ring; after some all processes are looked at again.
    pub lost_events: u64,
    /// Processes that were looked at in /proc.
    pub looks: u64,
    /// Images of processes that found no room to be published.
    pub no_room: u64,
    /// Samples that were given code that may not have been there any more.
    pub doubted: u64,
}

/// Follows all processes until it is dropped.
pub struct SideBand {
    tracker: Arc<Mutex<Tracker>>,
    stop: Option<PipeWriter>,
    thread: Option<JoinHandle<()>>,
}

/// Tells files apart as events do.
#[derive(Clone)]
pub struct EventIdentifier(Arc<Mutex<Tracker>>);

struct Tracker {
    rings: Rings,
    /// Not taken in yet.
    waiting: Vec<Event>,
    processes: Processes,
    origins: Origins,
    publisher: Publisher,
    counts: MappingCounts,
    looked: Instant,
    /// Processes that are to be looked at, and whether what is known of each still holds.
    look_at: HashMap<u32, bool>,
    must_look_at_all: bool,
    judged: [i64; REASONS],
}

fn lock(tracker: &Mutex<Tracker>) -> MutexGuard<'_, Tracker> {
    tracker.lock().unwrap_or_else(PoisonError::into_inner)
}

impl SideBand {
    /// Listens, and then looks at the processes that are there.
    pub fn start(publisher: Publisher) -> Result<Self, SideBandError> {
        let online = online().map_err(SideBandError::Cpus)?;
        let rings = Rings::open(&online).map_err(|error| match error.raw_os_error() {
            Some(libc::EPERM) => SideBandError::Memory(error),
            _ => SideBandError::Rings(error),
        })?;
        let tracker = Arc::new(Mutex::new(Tracker {
            rings,
            waiting: Vec::new(),
            processes: Processes::default(),
            origins: Origins::default(),
            publisher,
            counts: MappingCounts::default(),
            looked: Instant::now(),
            look_at: HashMap::new(),
            must_look_at_all: true,
            judged: [0; REASONS],
        }));
        let (stopped, stop) = io::pipe().map_err(SideBandError::Thread)?;
        let followed = Arc::clone(&tracker);
        let thread = Thread::new()
            .name("profcol-maps".into())
            .spawn(move || {
                loop {
                    let (mut files, patience) = {
                        let mut tracker = lock(&followed);
                        tracker.follow();
                        let patience = if tracker.waiting.is_empty() {
                            LOOK
                        } else {
                            UNDER_WAY
                        };
                        (tracker.rings.files().collect::<Vec<_>>(), patience)
                    };
                    files.push(stopped.as_raw_fd());
                    let readable = sys::wait_for_any(&files, patience);
                    if readable.contains(&stopped.as_raw_fd()) {
                        break;
                    }
                    std::thread::sleep(GATHER);
                }
            })
            .map_err(SideBandError::Thread)?;
        Ok(Self {
            tracker,
            stop: Some(stop),
            thread: Some(thread),
        })
    }

    pub fn identifier(&self) -> EventIdentifier {
        EventIdentifier(Arc::clone(&self.tracker))
    }

    /// Makes sure that all is known that happened until now.
    pub fn catch_up(&self) {
        let now = sys::since_boot();
        std::thread::sleep(UNDER_WAY);
        lock(&self.tracker).advance(now);
    }

    /// The reason why a sample's stack is not to be believed, if there is one. All that happened
    /// until it was taken is known.
    pub fn judge(&self, sample: &Sample) -> Option<EndReason> {
        let mut tracker = lock(&self.tracker);
        let reason = tracker.judge(sample)?;
        for (reason, more) in [(sample.end, -1), (reason as u32, 1)] {
            if let Some(count) = tracker.judged.get_mut(reason as usize) {
                *count += more;
            }
        }
        Some(reason)
    }

    /// How many samples more have each reason than the programs counted.
    pub fn judged(&self) -> [i64; REASONS] {
        lock(&self.tracker).judged
    }

    /// Acts on what the samples told that were judged.
    pub fn settle(&self) {
        lock(&self.tracker).settle();
    }

    pub fn path(&self, id: &FileId) -> PathBuf {
        let tracker = lock(&self.tracker);
        tracker.origins.path(id).map(Into::into).unwrap_or_default()
    }

    pub fn counts(&self) -> MappingCounts {
        lock(&self.tracker).counts
    }
}

impl Drop for SideBand {
    fn drop(&mut self) {
        self.stop.take();
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the thread that follows mappings ended in a panic");
        }
    }
}

impl EventIdentifier {
    pub fn identify(&self, file: &File) -> io::Result<Option<FileId>> {
        lock(&self.0).identify(file)
    }
}

impl Tracker {
    fn follow(&mut self) {
        if self.looked.elapsed() >= LOOK {
            self.looked = Instant::now();
            if let Ok(online) = online() {
                let mut drained = Drained::default();
                self.must_look_at_all |= self.rings.follow(&online, &mut drained);
                self.take(drained);
            }
            let Self {
                processes,
                publisher,
                ..
            } = self;
            processes.forget_gone(sys::since_boot(), scan::is_there, |image| {
                publisher.hide(&image)
            });
        }
        let under_way = u64::try_from(UNDER_WAY.as_nanos()).unwrap_or(0);
        self.advance(sys::since_boot().saturating_sub(under_way));
    }

    fn take(&mut self, drained: Drained) {
        self.waiting.extend(drained.events);
        if drained.lost > 0 {
            self.counts.lost_events += drained.lost;
            self.must_look_at_all = true;
        }
    }

    fn drain(&mut self) {
        let mut drained = Drained::default();
        self.rings.drain(&mut drained);
        self.take(drained);
    }

    /// Takes in all that happened until this time.
    fn advance(&mut self, until: u64) {
        self.drain();
        self.waiting.sort_by_key(|event| event.time);
        let count = self.waiting.partition_point(|event| event.time <= until);
        let ready: Vec<Event> = self.waiting.drain(..count).collect();
        self.origins.begin();
        if std::mem::take(&mut self.must_look_at_all) {
            self.look_at_all();
        }
        for event in ready {
            self.apply(event);
        }
        self.settle();
    }

    fn settle(&mut self) {
        for (pid, is_known) in std::mem::take(&mut self.look_at) {
            self.look(pid, is_known);
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
                    self.publisher.hide(&image);
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

    fn look_at_all(&mut self) {
        let Self {
            processes,
            publisher,
            ..
        } = self;
        processes.forget_all(|image| publisher.hide(&image));
        self.origins.forget_places();
        for pid in scan::processes() {
            self.look(pid, false);
        }
        tracing::debug!(
            processes = self.processes.len(),
            "looked at the mappings of all processes"
        );
    }

    /// Looks at a process in /proc. Of one that shows nothing, events will tell.
    fn look(&mut self, pid: u32, is_known: bool) {
        let now = sys::since_boot();
        let code = match scan::code(pid) {
            Some(code) => code,
            None if scan::is_there(pid) => Vec::new(),
            None => return,
        };
        self.counts.looks += 1;
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
            self.publisher.hide(&image);
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
            && let Ok(Some(found)) = self.origin(&file)
        {
            mapped.origin = Some(found);
        }
    }

    /// What an event tells of a file that is open here.
    fn origin(&mut self, file: &File) -> io::Result<Option<events::Origin>> {
        let mapped = sys::Mapped::first_page_of_code(file.as_fd())?;
        self.drain();
        let (own, start) = (std::process::id(), mapped.address());
        let found = self
            .waiting
            .iter()
            .rev()
            .find_map(|event| match &event.kind {
                Kind::Mapped(told) if event.pid == own && told.start == start => told.origin,
                _ => None,
            });
        Ok(found)
    }

    fn identify(&mut self, file: &File) -> io::Result<Option<FileId>> {
        let Some(origin) = self.origin(file)? else {
            return Ok(None);
        };
        Ok(Some(self.origins.note(origin, origins::written_of(file))))
    }

    fn publish(&mut self) {
        for pid in self.processes.take_changed() {
            let Some(process) = self.processes.get_mut(pid) else {
                continue;
            };
            let Some(image) = process.image(pid) else {
                continue;
            };
            if self.publisher.show(image, process) {
                process.shown(image, sys::since_boot());
            } else {
                process.shown = None;
                self.counts.no_room += 1;
            }
        }
    }

    fn judge(&mut self, sample: &Sample) -> Option<EndReason> {
        if self.processes.is_doubtful(&sample.process, sample.time) {
            self.counts.doubted += 1;
            return Some(EndReason::MappingsChanging);
        }
        if sample.end != EndReason::MappingsPending as u32 {
            return None;
        }
        let pid = sample.process.pid;
        match self.processes.met_unmapped(&sample.process, sample.time) {
            Unmapped::Pending => None,
            Unmapped::Look => {
                self.look_at.insert(pid, false);
                None
            }
            Unmapped::Nowhere { look } => {
                if look {
                    self.look_at.entry(pid).or_insert(true);
                }
                Some(EndReason::NoMapping)
            }
        }
    }
}

fn online() -> io::Result<Vec<u32>> {
    aya::util::online_cpus().map_err(|(path, error)| {
        io::Error::new(error.kind(), format!("cannot read {path}: {error}"))
    })
}
