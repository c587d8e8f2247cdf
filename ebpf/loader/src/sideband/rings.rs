//! Reads the kernel's events from a perf ring buffer on each CPU.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::error::SideBandError;
use super::records::{self, FileOrigin, Kind, ProcessEvent, RingRecord};
use crate::events;
use crate::sys::{self, EventScope, Mapped};

/// Maximum delay between an event's time and its arrival in the ring.
pub const MAX_EVENT_DELAY: Duration = Duration::from_millis(1);

/// Bytes of a ring, a power of two. By default a user may lock half a MiB per CPU (`perf_event_mlock_kb`).
const OF_CPU: usize = 256 << 10;
/// At least one page, which may be this large.
const OF_THREAD: usize = 64 << 10;

/// Positions of `data_head` and `data_tail` in the page before the records, in words of eight bytes.
const HEAD: usize = 128;
const TAIL: usize = 129;

struct Ring {
    event: OwnedFd,
    mapped: Mapped,
    /// The offset of the records: one page.
    records: usize,
}

enum RingOpenError {
    Event(io::Error),
    Memory(io::Error),
}

pub struct Rings {
    by_cpu: BTreeMap<u32, Ring>,
}

/// The drained contents of the rings.
#[derive(Default)]
pub struct Drained {
    pub events: Vec<ProcessEvent>,
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

    /// True if a CPU came online: its events so far are missing.
    pub fn follow(&mut self, online: &[u32], drained: &mut Drained) -> bool {
        let mut is_new_cpu = false;
        for &cpu in online {
            if !self.by_cpu.contains_key(&cpu)
                && let Ok(ring) = Ring::open(EventScope::Cpu(cpu), OF_CPU)
            {
                self.by_cpu.insert(cpu, ring);
                is_new_cpu = true;
            }
        }
        self.by_cpu.retain(|cpu, ring| {
            let stays = online.contains(cpu);
            if !stays {
                ring.drain(drained);
            }
            stays
        });
        is_new_cpu
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

/// The origin of a file as reported by events: maps it in this process and reads the event.
pub fn origin(file: &File) -> io::Result<Option<FileOrigin>> {
    let ring = match Ring::open(EventScope::ThisThread, OF_THREAD) {
        Ok(ring) => ring,
        Err(RingOpenError::Event(error) | RingOpenError::Memory(error)) => return Err(error),
    };
    let mapped = Mapped::first_page_of_code(file.as_fd())?;
    let mut drained = Drained::default();
    ring.drain(&mut drained);
    let mut events = drained.events.into_iter().rev();
    Ok(events.find_map(|event| match event.kind {
        Kind::Mapped(event) if event.start == mapped.address() => event.origin,
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
                Some(RingRecord::Event(event)) => drained.events.push(event),
                Some(RingRecord::Lost(count)) => drained.lost += count,
                Some(RingRecord::Other) => {}
                None => drained.lost += 1,
            }
        }
        self.mapped.long(TAIL).store(tail, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use std::os::linux::fs::MetadataExt;

    use profcol_test_skip::skip;

    use super::*;

    #[test]
    fn an_event_identifies_a_file_mapped_here() {
        let open = || File::open("/proc/self/exe").expect("it is running");
        match origin(&open()) {
            Ok(found) => {
                let found = found.expect("mapping it was an event");
                let published = open().metadata().expect("it is open");
                assert_eq!(found.inode, published.st_ino());
                assert_eq!(origin(&open()).expect("as before"), Some(found));
            }
            Err(error) => {
                skip(&format!("the kernel gives no events: {error}"));
            }
        }
    }
}
