//! Atoms: the names of modules and functions.

use std::collections::HashMap;
use std::sync::Arc;

use crate::FunctionError;
use crate::memory::Memory;

/// Maximum size of a name: 255 characters of UTF-8.
const MAX_NAME_BYTES: u16 = 1020;
/// Maximum number of cached names; more are read each time.
const MAX_CACHED: usize = 1 << 14;

const TAG_BITS: u64 = 0x3f;
const TAG: u64 = 0x0b;
const TAG_SHIFT: u32 = 6;

/// In the table of atoms: segments of 1024 entries.
const SEGMENTS: u64 = 120;
const SEGMENT_SHIFT: u64 = 10;
const MAX_SEGMENTS: u64 = 1 << 17;

/// In an entry.
const LENGTH: u64 = 24;
const NAME: u64 = 32;

/// The names of a process, which never change.
#[derive(Debug)]
pub struct Atoms {
    table: u64,
    known: HashMap<u64, Arc<str>>,
}

impl Atoms {
    pub fn new(table: u64) -> Self {
        Self {
            table,
            known: HashMap::new(),
        }
    }

    /// The name of an atom.
    pub fn name(&mut self, memory: &impl Memory, term: u64) -> Result<Arc<str>, FunctionError> {
        if let Some(known) = self.known.get(&term) {
            return Ok(Arc::clone(known));
        }
        let name = self.read(memory, term)?;
        if self.known.len() < MAX_CACHED {
            self.known.insert(term, Arc::clone(&name));
        }
        Ok(name)
    }

    fn read(&self, memory: &impl Memory, term: u64) -> Result<Arc<str>, FunctionError> {
        if term & TAG_BITS != TAG {
            return Err(FunctionError::Invalid("the name is not an atom"));
        }
        let index = term >> TAG_SHIFT;
        let segment = index >> SEGMENT_SHIFT;
        if segment >= MAX_SEGMENTS {
            return Err(FunctionError::Invalid("the atom has no entry"));
        }
        let entry_at = |table: u64, place: u64| memory.word(table.wrapping_add(place * 8));
        let segments = memory.word(self.table.wrapping_add(SEGMENTS))?;
        let entries = entry_at(segments, segment)?;
        let entry = entry_at(entries, index & ((1 << SEGMENT_SHIFT) - 1))?;
        let length = memory.word(entry.wrapping_add(LENGTH))? as u16;
        if length > MAX_NAME_BYTES {
            return Err(FunctionError::Invalid("the atom is too long"));
        }
        let name = memory.word(entry.wrapping_add(NAME))?;
        let bytes = memory.bytes(name, length.into())?;
        Ok(String::from_utf8_lossy(&bytes).into())
    }
}
