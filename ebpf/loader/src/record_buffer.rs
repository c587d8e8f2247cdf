//! The ring buffer with the records of the programs.

use std::io;
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::sync::atomic::Ordering;

use aya::maps::{MapData, RingBuf};

use crate::sys::{self, Mapped};

pub struct RecordBuffer {
    ring: RingBuf<MapData>,
    /// Two pages: one begins with the position of the consumer, the other with that of the producer.
    positions: Mapped,
}

impl RecordBuffer {
    pub fn new(ring: RingBuf<MapData>) -> io::Result<Self> {
        let positions = Mapped::read_only(ring.as_fd(), 2 * sys::page_size() as usize)?;
        Ok(Self { ring, positions })
    }

    /// Calls `take` with the records until now. Those that follow must wait: they may come faster than they are taken.
    pub fn drain(&mut self, mut take: impl FnMut(&[u8])) {
        let longs = self.positions.len() / 8;
        let end = self.positions.long(longs / 2).load(Ordering::Acquire);
        // Only this thread moves the consumer.
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
