//! The ring buffer with the records of the programs.

use std::io;
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::sync::atomic::Ordering;

use aya::maps::{MapData, RingBuf};

use crate::sys::{self, Mapped};

pub struct RecordBuffer {
    ring: RingBuf<MapData>,
    /// A page each with the position of the consumer and of the producer.
    positions: Mapped,
    page_bytes: usize,
}

impl RecordBuffer {
    pub fn new(ring: RingBuf<MapData>) -> io::Result<Self> {
        let page_bytes = sys::page_size() as usize;
        let positions = Mapped::read_only(ring.as_fd(), 2 * page_bytes)?;
        Ok(Self {
            ring,
            positions,
            page_bytes,
        })
    }

    /// Calls `take` with the records until now. Those that follow must wait: they may come faster than they are taken.
    pub fn drain(&mut self, mut take: impl FnMut(&[u8])) {
        let end = self
            .positions
            .long(self.page_bytes / 8)
            .load(Ordering::Acquire);
        while self.positions.long(0).load(Ordering::Relaxed) < end
            && let Some(record) = self.ring.next()
        {
            take(&record);
        }
    }
}

impl AsRawFd for RecordBuffer {
    fn as_raw_fd(&self) -> RawFd {
        self.ring.as_raw_fd()
    }
}
