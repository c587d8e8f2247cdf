//! Counts the outcomes of files, in the threads that make their tables.

use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use crate::runtime_counts::RuntimeCounts;

/// The counters of the threads, read as [`TableCounts`].
#[derive(Default)]
pub struct Stats {
    pub built: AtomicU64,
    pub refused: AtomicU64,
    pub not_elf: AtomicU64,
    pub vanished: AtomicU64,
    pub no_room: AtomicU64,
    pub evicted: AtomicU64,
    pub table_bytes: AtomicU64,
    pub runtimes: Mutex<RuntimeCounts>,
    pub reader_failures: AtomicU64,
}

/// Outcomes of files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TableCounts {
    pub built: u64,
    /// Damaged or unsupported files.
    pub refused: u64,
    /// Files in other formats, and memory-backed files.
    pub not_elf: u64,
    /// Files that disappeared before they could be opened.
    pub vanished: u64,
    /// Files without room in the table memory.
    pub no_room: u64,
    /// Files evicted to make room for others.
    pub evicted: u64,
    /// Memory used by the tables.
    pub bytes: u64,
    /// Failures of the process that reads files.
    pub reader_failures: u64,
}

impl Stats {
    pub fn count(counter: &AtomicU64) {
        counter.fetch_add(1, Ordering::Relaxed);
    }

    pub fn counts(&self) -> TableCounts {
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        TableCounts {
            built: count(&self.built),
            refused: count(&self.refused),
            not_elf: count(&self.not_elf),
            vanished: count(&self.vanished),
            no_room: count(&self.no_room),
            evicted: count(&self.evicted),
            bytes: count(&self.table_bytes),
            reader_failures: count(&self.reader_failures),
        }
    }
}
