//! The areas published to the programs, in their memory layout.

use std::io;
use std::os::fd::AsFd;
use std::sync::atomic::Ordering;

use aya::maps::{Array, IterableMap, MapData};
use profcol_ebpf_common::published::Area;

use crate::sys::Mapped;

const PAGE: usize = 4096;
const WORDS: usize = size_of::<Area>() / 4;

pub struct AreaMemory {
    mapped: Mapped,
    count: u32,
}

impl AreaMemory {
    pub fn new(map: &Array<MapData, Area>) -> io::Result<Self> {
        let count = map.len();
        let bytes = (count as usize * size_of::<Area>()).next_multiple_of(PAGE);
        Ok(Self {
            mapped: Mapped::shared(map.map().fd().as_fd(), bytes)?,
            count,
        })
    }

    pub fn count(&self) -> u32 {
        self.count
    }

    /// No program may read `index` at the time.
    pub fn write(&self, index: u32, area: &Area) {
        assert!(index < self.count, "area {index} of {}", self.count);
        let words: &[u32] = bytemuck::cast_slice(bytemuck::bytes_of(area));
        for (offset, word) in words.iter().enumerate() {
            let at = index as usize * WORDS + offset;
            self.mapped.word(at).store(*word, Ordering::Release);
        }
    }
}
