//! Tells the programs of files that have an interpreter.

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

    /// Before any rule leads to it. False where there is no room.
    pub fn add(&mut self, file: u32, interpreter: &Interpreter) -> bool {
        match self.entries.insert(file, interpreter, 0) {
            Ok(()) => {
                self.known.insert(file);
                true
            }
            Err(error) => {
                tracing::warn!(%error, "No room for another interpreter; its frames are native ones.");
                false
            }
        }
    }

    /// Rules that the programs remember may still lead to it: then its frames are native ones.
    pub fn remove(&mut self, file: u32) {
        if self.known.remove(&file)
            && let Err(error) = self.entries.remove(&file)
        {
            tracing::debug!(file, %error, "failed to remove an interpreter");
        }
    }
}
