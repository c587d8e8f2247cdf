//! The kernel's events, from a ring on each CPU.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::sync::atomic::Ordering;

use super::events::{self, Event, Record};
use crate::sys::{self, Mapped};

/// Bytes of a ring: what a user may lock without asking is for half a MiB on each CPU.
const BYTES: usize = 256 << 10;

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
    pub fn open(cpus: &[u32]) -> io::Result<Self> {
        let mut rings = Self {
            by_cpu: BTreeMap::new(),
        };
        for &cpu in cpus {
            match Ring::open(cpu) {
                Ok(ring) => {
                    rings.by_cpu.insert(cpu, ring);
                }
                Err(error) if crate::events::is_gone(&error) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(rings)
    }

    /// True where a CPU came: what happened on it until now is not known.
    pub fn follow(&mut self, online: &[u32], drained: &mut Drained) -> bool {
        let mut came = false;
        for &cpu in online {
            if !self.by_cpu.contains_key(&cpu)
                && let Ok(ring) = Ring::open(cpu)
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

impl Ring {
    fn open(cpu: u32) -> io::Result<Self> {
        let event = sys::open_process_events(cpu)?;
        let records = sys::page_size() as usize;
        let mapped = Mapped::shared(event.as_fd(), records + BYTES)?;
        sys::enable(event.as_fd())?;
        Ok(Self {
            event,
            mapped,
            records,
        })
    }

    fn drain(&self, drained: &mut Drained) {
        let head = self.mapped.long(HEAD).load(Ordering::Acquire);
        let mut tail = self.mapped.long(TAIL).load(Ordering::Relaxed);
        let word = |at: u64| {
            let place = (at as usize & (BYTES - 1)) + self.records;
            self.mapped.long(place / 8).load(Ordering::Relaxed)
        };
        let mut bytes = Vec::new();
        while tail < head {
            let size = word(tail) >> 48;
            if size == 0 || size % 8 != 0 || size > head - tail {
                tracing::error!(size, "The kernel's events cannot be read.");
                drained.lost += 1;
                tail = head;
                break;
            }
            bytes.clear();
            for at in (tail..tail + size).step_by(8) {
                bytes.extend(word(at).to_le_bytes());
            }
            tail += size;
            match events::parse(&bytes) {
                Some(Record::Event(event)) => drained.events.push(event),
                Some(Record::Lost(count)) => drained.lost += count,
                Some(Record::Other) => {}
                None => drained.lost += 1,
            }
        }
        self.mapped.long(TAIL).store(tail, Ordering::Release);
    }
}
