//! The kernel's events, from a ring on each CPU.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::sync::atomic::Ordering;

use super::SideBandError;
use super::records::{self, Event, FileOrigin, Kind, Record};
use crate::events;
use crate::sys::{self, EventScope, Mapped};

/// Bytes of a ring, a power of two: what a user may lock without asking is for half a MiB on each CPU.
const OF_CPU: usize = 256 << 10;
/// Pages may be as large.
const OF_THREAD: usize = 64 << 10;

/// Words of eight bytes in the page before the records: how far the kernel wrote, and how far it was
/// read.
const HEAD: usize = 128;
const TAIL: usize = 129;

struct Ring {
    event: OwnedFd,
    mapped: Mapped,
    /// How far in it the records begin: behind a page.
    records: usize,
}

enum RingOpenError {
    Event(io::Error),
    Memory(io::Error),
}

pub struct Rings {
    by_cpu: BTreeMap<u32, Ring>,
}

/// What was in the rings.
#[derive(Default)]
pub struct Drained {
    pub events: Vec<Event>,
    pub lost: u64,
}

impl Rings {
    pub fn open(cpus: &[u32]) -> Result<Self, SideBandError> {
        let mut rings = Self {
            by_cpu: BTreeMap::new(),
        };
        for &cpu in cpus {
            match Ring::open(EventScope::Cpu(cpu), OF_CPU) {
                Ok(ring) => {
                    rings.by_cpu.insert(cpu, ring);
                }
                Err(RingOpenError::Event(error)) if events::is_gone(&error) => {}
                Err(RingOpenError::Event(error)) => {
                    return Err(events::open_error(cpu, error, cpus.len()).into());
                }
                Err(RingOpenError::Memory(error)) => return Err(SideBandError::Memory(error)),
            }
        }
        Ok(rings)
    }

    /// True where a CPU came: what happened on it until now is not known.
    pub fn follow(&mut self, online: &[u32], drained: &mut Drained) -> bool {
        let mut came = false;
        for &cpu in online {
            if !self.by_cpu.contains_key(&cpu)
                && let Ok(ring) = Ring::open(EventScope::Cpu(cpu), OF_CPU)
            {
                self.by_cpu.insert(cpu, ring);
                came = true;
            }
        }
        self.by_cpu.retain(|cpu, ring| {
            let stays = online.contains(cpu);
            if !stays {
                ring.drain(drained);
            }
            stays
        });
        came
    }

    pub fn drain(&self, drained: &mut Drained) {
        for ring in self.by_cpu.values() {
            ring.drain(drained);
        }
    }

    pub fn files(&self) -> impl Iterator<Item = RawFd> {
        self.by_cpu.values().map(|ring| ring.event.as_raw_fd())
    }
}

/// What events tell of a file: it is mapped here, and the event of that is read.
pub fn origin(file: &File) -> io::Result<Option<FileOrigin>> {
    let ring = match Ring::open(EventScope::ThisThread, OF_THREAD) {
        Ok(ring) => ring,
        Err(RingOpenError::Event(error) | RingOpenError::Memory(error)) => return Err(error),
    };
    let mapped = Mapped::first_page_of_code(file.as_fd())?;
    let mut drained = Drained::default();
    ring.drain(&mut drained);
    let mut told = drained.events.into_iter().rev();
    Ok(told.find_map(|event| match event.kind {
        Kind::Mapped(told) if told.start == mapped.address() => told.origin,
        _ => None,
    }))
}

impl Ring {
    fn open(of: EventScope, bytes: usize) -> Result<Self, RingOpenError> {
        let event = sys::open_process_events(of).map_err(RingOpenError::Event)?;
        let records = sys::page_size() as usize;
        let mapped =
            Mapped::shared(event.as_fd(), records + bytes).map_err(RingOpenError::Memory)?;
        sys::enable(event.as_fd()).map_err(RingOpenError::Event)?;
        Ok(Self {
            event,
            mapped,
            records,
        })
    }

    fn drain(&self, drained: &mut Drained) {
        let head = self.mapped.long(HEAD).load(Ordering::Acquire);
        let mut tail = self.mapped.long(TAIL).load(Ordering::Relaxed);
        let mask = self.mapped.len() - self.records - 1;
        let word = |at: u64| {
            let place = (at as usize & mask) + self.records;
            self.mapped.long(place / 8).load(Ordering::Relaxed)
        };
        let mut bytes = Vec::new();
        while tail < head {
            let size = word(tail) >> 48;
            if size == 0 || size % 8 != 0 || size > head - tail {
                tracing::error!(size, "Invalid record in a perf ring buffer.");
                drained.lost += 1;
                tail = head;
                break;
            }
            bytes.clear();
            for at in (tail..tail + size).step_by(8) {
                bytes.extend(word(at).to_le_bytes());
            }
            tail += size;
            match records::parse(&bytes) {
                Some(Record::Event(event)) => drained.events.push(event),
                Some(Record::Lost(count)) => drained.lost += count,
                Some(Record::Other) => {}
                None => drained.lost += 1,
            }
        }
        self.mapped.long(TAIL).store(tail, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use std::os::linux::fs::MetadataExt;

    use super::*;

    #[test]
    #[expect(clippy::print_stderr, reason = "says what is skipped")]
    fn an_event_tells_of_a_file_that_is_mapped_here() {
        let open = || File::open("/proc/self/exe").expect("it is running");
        match origin(&open()) {
            Ok(told) => {
                let told = told.expect("mapping it was an event");
                let published = open().metadata().expect("it is open");
                assert_eq!(told.inode, published.st_ino());
                assert_eq!(origin(&open()).expect("as before"), Some(told));
            }
            Err(error) => {
                let ci = std::env::var("CI").is_ok_and(|ci| ci == "true");
                assert!(!ci, "no events: {error}");
                eprintln!("skipped: the kernel gives no events here: {error}");
            }
        }
    }
}
