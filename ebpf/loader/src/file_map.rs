//! Publishes facts about files to the programs.

use std::collections::HashSet;

use aya::Pod;
use aya::maps::{HashMap, MapData, MapError};

/// A map of the programs by file number.
pub struct FileMap<T: Pod> {
    entries: HashMap<MapData, u32, T>,
    known: HashSet<u32>,
}

impl<T: Pod> FileMap<T> {
    pub fn new(entries: HashMap<MapData, u32, T>) -> Self {
        Self {
            entries,
            known: HashSet::new(),
        }
    }

    /// Must precede any rule that refers to it. Fails if the map is full.
    pub fn add(&mut self, file: u32, value: &T) -> Result<(), MapError> {
        self.entries.insert(file, value, 0)?;
        self.known.insert(file);
        Ok(())
    }

    /// The programs may still have references to it, and find nothing.
    pub fn remove(&mut self, file: u32) {
        if self.known.remove(&file)
            && let Err(error) = self.entries.remove(&file)
        {
            tracing::debug!(file, %error, "failed to remove a file from a map");
        }
    }
}
