//! Counts of samples that were aggregated in the kernel.

use std::os::fd::AsFd;

use aya::maps::{Array, MapData, MapError};
use profcol_ebpf_common::sample_counts::{SampleKey, count_buffer};
use profcol_ebpf_common::settings::Settings;

use crate::sys;

/// Entries per batch operation; must exceed the size of any hash bucket.
const BATCH: usize = 4096;

/// The double-buffered count maps.
pub struct SampleCounts {
    settings: Array<MapData, Settings>,
    current: Settings,
    first: MapData,
    second: MapData,
}

impl SampleCounts {
    pub fn new(
        settings: Array<MapData, Settings>,
        current: Settings,
        first: MapData,
        second: MapData,
    ) -> Self {
        Self {
            settings,
            current,
            first,
            second,
        }
    }

    /// The current buffer.
    pub fn count_buffer(&self) -> u32 {
        self.current.count_buffer
    }

    /// Swaps the buffers. After this returns, the previous one no longer changes.
    pub fn swap_count_buffers(&mut self) -> Result<(), MapError> {
        let next = if self.current.count_buffer == count_buffer::FIRST {
            count_buffer::SECOND
        } else {
            count_buffer::FIRST
        };
        let current = Settings {
            count_buffer: next,
            ..self.current
        };
        // Only this field changes, so concurrent reads are safe.
        self.settings.set(0, current, 0)?;
        self.current = current;
        sys::wait_for_programs();
        Ok(())
    }

    /// Drains the previous buffer.
    pub fn take(&self, mut take: impl FnMut(SampleKey, u64)) -> std::io::Result<()> {
        let ended = match self.current.count_buffer {
            count_buffer::FIRST => &self.second,
            count_buffer::SECOND => &self.first,
            _ => return Ok(()),
        };
        let mut keys = vec![SampleKey::default(); BATCH];
        let mut counts = vec![0u64; BATCH];
        let mut cursor = None;
        loop {
            let batch = sys::take_batch(ended.fd().as_fd(), &mut cursor, &mut keys, &mut counts)?;
            for (key, count) in keys.iter().zip(&counts).take(batch.taken) {
                take(*key, *count);
            }
            if batch.was_last {
                return Ok(());
            }
        }
    }
}
