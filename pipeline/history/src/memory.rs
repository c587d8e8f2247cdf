//! The newest chunks.

use std::collections::VecDeque;

use profcol_component::DeferredSymbols;
use profcol_flamegraph::SampleType;
use profcol_profile::Model;

use crate::chunk::{Chunk, RecordId};
use crate::piece::Coverage;
use crate::{Extent, Limits, add_types};

/// Chunks that share the memory and the time: an eviction removes one of them.
const CHUNKS: u32 = 12;
/// Slices per record on disk.
const MAX_SLICES: usize = 64;

#[derive(Default)]
pub(super) struct Memory {
    chunks: VecDeque<Chunk>,
    /// The number of chunks removed so far.
    removed_chunks: u64,
    evicted_samples: u64,
    /// Behind the last record on disk whose chunk knows that it is there.
    pub boundary: RecordId,
}

/// Slices to write to disk.
pub(super) struct NextPiece {
    /// Number of the chunk since the start.
    pub chunk: u64,
    /// The end of the slices.
    pub slices: usize,
    pub piece: (Model, Coverage, u64),
}

impl Memory {
    pub fn add(&mut self, model: &Model, symbols: &DeferredSymbols, limits: &Limits) {
        let share = limits.max_bytes / CHUNKS as usize;
        let span = limits.max_age / CHUNKS;
        let is_full = |chunk: &Chunk| chunk.bytes() >= share || chunk.span() >= span;
        if self.chunks.back().is_none_or(is_full) {
            if let Some(last) = self.chunks.back_mut() {
                last.finish();
            }
            self.chunks.push_back(Chunk::new(limits.resolution));
        }
        if let Some(chunk) = self.chunks.back_mut() {
            chunk.add(model, symbols, &limits.sample_labels);
        }
    }

    /// Removes the oldest chunks beyond the limits. Those that are not on disk yet only go with `is_forced`; returns
    /// false if one of them is over the memory limit.
    pub fn evict(&mut self, limits: &Limits, has_archive: bool, is_forced: bool) -> bool {
        let newest = self.chunks.back().and_then(Chunk::range);
        let newest = newest.map_or(0, |(_, end)| end);
        let oldest_kept = newest.saturating_sub(limits.max_age.as_millis() as u64);
        let mut bytes: usize = self.chunks.iter().map(Chunk::bytes).sum();
        loop {
            // The newest chunk always stays: users look at it.
            let Some(oldest) = self.chunks.front().filter(|_| self.chunks.len() > 1) else {
                return true;
            };
            let is_over = bytes > limits.max_bytes;
            let is_old = oldest.range().is_none_or(|(_, end)| end <= oldest_kept);
            if !is_over && !is_old {
                return true;
            }
            let is_unsaved = has_archive && !oldest.is_archived();
            if is_unsaved && !(is_forced && is_over) {
                return !is_over;
            }
            bytes -= oldest.bytes();
            self.removed_chunks += 1;
            self.evicted_samples += match has_archive {
                true => oldest.unarchived_samples(),
                false => oldest.samples(),
            };
            self.chunks.pop_front();
        }
    }

    pub fn chunks(&self) -> impl Iterator<Item = &Chunk> {
        self.chunks.iter()
    }

    pub fn resolve_symbols(&mut self) {
        for chunk in &mut self.chunks {
            chunk.resolve_symbols();
        }
    }

    /// Where the records begin whose chunks are in memory.
    pub fn boundary(&self) -> RecordId {
        let first = self.chunks.iter().find_map(|chunk| chunk.first_record);
        first.unwrap_or(self.boundary)
    }

    /// Closes slices that ended before `time`, with their symbols.
    pub fn seal_until(&mut self, time: u64) {
        self.resolve_symbols();
        for chunk in &mut self.chunks {
            chunk.seal_until(time);
        }
    }

    pub fn next_piece(&self, until: u64) -> Option<NextPiece> {
        let pieces = self.chunks.iter().enumerate().filter_map(|(row, chunk)| {
            let slices = chunk.unarchived(until, MAX_SLICES);
            let end = slices.end;
            Some(NextPiece {
                chunk: self.removed_chunks + row as u64,
                slices: end,
                piece: chunk.piece(slices)?,
            })
        });
        pieces.into_iter().next()
    }

    pub fn set_archived(&mut self, chunk: u64, slices: usize, record: RecordId) {
        self.boundary = (record.0, record.1.saturating_add(1));
        let row = chunk.checked_sub(self.removed_chunks);
        let row = row.and_then(|row| usize::try_from(row).ok());
        if let Some(chunk) = row.and_then(|row| self.chunks.get_mut(row)) {
            chunk.set_archived(slices, record);
        }
    }

    pub fn is_archived(&self) -> bool {
        self.chunks.iter().all(Chunk::is_archived)
    }

    pub fn unarchived_samples(&self) -> u64 {
        self.chunks.iter().map(Chunk::unarchived_samples).sum()
    }

    pub fn extent(&self) -> Extent {
        let mut extent = Extent {
            evicted_samples: self.evicted_samples,
            types: self.types(0, u64::MAX),
            ..Extent::default()
        };
        for chunk in &self.chunks {
            let Some((start, end)) = chunk.range() else {
                continue;
            };
            extent.oldest = Some(extent.oldest.map_or(start, |other| other.min(start)));
            extent.newest = Some(extent.newest.map_or(end, |other| other.max(end)));
            extent.samples += chunk.samples();
            extent.bytes += chunk.bytes();
        }
        extent
    }

    pub fn types(&self, from: u64, until: u64) -> Vec<SampleType> {
        let mut types: Vec<SampleType> = Vec::new();
        for chunk in &self.chunks {
            let is_of_time = chunk
                .range()
                .is_some_and(|(start, end)| start < until && from <= end);
            let of_chunk: Vec<_> = chunk.types().filter(|_| is_of_time).cloned().collect();
            add_types(&mut types, &of_chunk);
        }
        types
    }
}
