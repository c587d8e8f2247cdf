//! Publishes files with an interpreter to the programs.

use std::collections::HashSet;

use aya::maps::{HashMap, MapData};
use profcol_ebpf_common::interpreter::Interpreter;

pub struct Interpreters {
    entries: HashMap<MapData, u32, Interpreter>,
    known: HashSet<u32>,
}

impl Interpreters {
    pub fn new(entries: HashMap<MapData, u32, Interpreter>) -> Self {
        Self {
            entries,
            known: HashSet::new(),
        }
    }

    /// Must precede any rule that refers to it. False if the map is full.
    pub fn add(&mut self, file: u32, interpreter: &Interpreter) -> bool {
        match self.entries.insert(file, interpreter, 0) {
            Ok(()) => {
                self.known.insert(file);
                true
            }
            Err(error) => {
                tracing::warn!(%error, "Failed to add an interpreter; showing its native frames.");
                false
            }
        }
    }

    /// Cached rules in the programs may still refer to it; its frames are then shown as native ones.
    pub fn remove(&mut self, file: u32) {
        if self.known.remove(&file)
            && let Err(error) = self.entries.remove(&file)
        {
            tracing::debug!(file, %error, "failed to remove an interpreter");
        }
    }
}
