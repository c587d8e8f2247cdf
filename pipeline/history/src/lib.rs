//! The profiles of the last hour, in memory.
//!
//! ```text
//! batch ─► newest chunk ─► slice ─► rows (series, node, value)
//!          string, frame, node and series tables, shared by its slices
//! ```
//!
//! Tables only grow, so they are evicted as a whole with the oldest chunk. Each chunk has a fixed share of the memory
//! limit and of the retention time.

mod chunk;
mod query;
mod recent;
mod selector;
mod series;
mod service_name;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::time::Duration;

use profcol_component::DeferredSymbols;
use profcol_flamegraph::SampleType;
use profcol_profile::Model;

use self::chunk::Chunk;
pub use self::query::{Query, QueryResult};
pub use self::recent::{Group, ProcessGroup, Recent, Snapshot};
pub use self::selector::{Selector, SelectorError};
pub use self::series::{Points, Steps};
pub use self::service_name::SERVICE_NAME;

/// Chunks that share the memory and the time: an eviction removes one of them.
const CHUNKS: u32 = 12;

pub struct History {
    chunks: VecDeque<Chunk>,
    limits: Limits,
    evicted_samples: u64,
}

#[derive(Clone, Debug)]
pub struct Limits {
    pub max_age: Duration,
    pub max_bytes: usize,
    pub resolution: Duration,
    pub sample_labels: Vec<String>,
}

/// The content of the history.
#[derive(Clone, Debug, Default)]
pub struct Extent {
    /// Unix time in milliseconds.
    pub oldest: Option<u64>,
    pub newest: Option<u64>,
    pub types: Vec<SampleType>,
    pub samples: u64,
    pub evicted_samples: u64,
    pub bytes: usize,
}

impl History {
    pub fn new(limits: Limits) -> Self {
        Self {
            chunks: VecDeque::new(),
            limits,
            evicted_samples: 0,
        }
    }

    pub fn add(&mut self, model: &Model, symbols: &DeferredSymbols) {
        let share = self.limits.max_bytes / CHUNKS as usize;
        let span = self.limits.max_age / CHUNKS;
        let is_full = |chunk: &Chunk| chunk.bytes() >= share || chunk.span() >= span;
        if self.chunks.back().is_none_or(is_full) {
            if let Some(last) = self.chunks.back_mut() {
                last.seal();
            }
            self.chunks.push_back(Chunk::new(self.limits.resolution));
        }
        if let Some(chunk) = self.chunks.back_mut() {
            chunk.add(model, symbols, &self.limits.sample_labels);
        }
        self.evict();
    }

    /// Resolves deferred symbols that have become available.
    pub fn resolve_symbols(&mut self) {
        for chunk in &mut self.chunks {
            chunk.resolve_symbols();
        }
    }

    pub fn extent(&self) -> Extent {
        let mut extent = Extent {
            evicted_samples: self.evicted_samples,
            ..Extent::default()
        };
        for chunk in &self.chunks {
            for kind in chunk.types() {
                if !extent.types.contains(kind) {
                    extent.types.push(kind.clone());
                }
            }
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

    /// The sample types that may occur in this time range.
    pub fn types(&self, from: u64, until: u64) -> Vec<SampleType> {
        let mut types: Vec<SampleType> = Vec::new();
        for chunk in &self.chunks {
            let is_of_time = chunk
                .range()
                .is_some_and(|(start, end)| start < until && from <= end);
            for kind in chunk.types().filter(|_| is_of_time) {
                if !types.contains(kind) {
                    types.push(kind.clone());
                }
            }
        }
        types
    }

    /// The start of the slice of this time.
    pub fn slice_start(&self, time: u64) -> u64 {
        let resolution = (self.limits.resolution.as_millis() as u64).max(1);
        time / resolution * resolution
    }

    fn evict(&mut self) {
        let newest = self.chunks.back().and_then(Chunk::range);
        let newest = newest.map_or(0, |(_, end)| end);
        let oldest_kept = newest.saturating_sub(self.limits.max_age.as_millis() as u64);
        loop {
            let bytes: usize = self.chunks.iter().map(Chunk::bytes).sum();
            let is_over = bytes > self.limits.max_bytes;
            let is_old = |chunk: &Chunk| chunk.range().is_none_or(|(_, end)| end <= oldest_kept);
            // The newest chunk always stays: users look at it.
            if self.chunks.len() < 2 || !(is_over || self.chunks.front().is_some_and(is_old)) {
                return;
            }
            if let Some(chunk) = self.chunks.pop_front() {
                self.evicted_samples += chunk.samples();
            }
        }
    }
}
