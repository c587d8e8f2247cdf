//! The memory of a prototype.

use profcol_ebpf_common::interpreter::luajit::prototype;

use crate::FunctionError;
use crate::memory::Memory;

/// Maximum size of a prototype with its code; larger ones have no lines.
const MAX_PROTOTYPE_BYTES: usize = 1 << 20;

/// Members of `GCproto`.
const CONSTANTS: usize = 32;
const SIZE: usize = 56;
const LINE_TABLE: usize = 80;
const UPVALUE_NAMES: usize = 88;
const VARIABLES: usize = 96;

/// A prototype, which is one piece of memory with its code, constants and debug information.
pub struct PrototypeBytes {
    address: u64,
    bytes: Vec<u8>,
}

impl PrototypeBytes {
    pub fn read(memory: &impl Memory, address: u64) -> Result<Self, FunctionError> {
        let mut size = [0; 4];
        memory.read(address.wrapping_add(SIZE as u64), &mut size)?;
        let size = u32::from_le_bytes(size) as usize;
        let size = if size > MAX_PROTOTYPE_BYTES { 0 } else { size };
        let bytes = memory.bytes(address, size.max(prototype::BYTES as usize))?;
        Ok(Self { address, bytes })
    }

    pub fn word(&self, at: usize) -> u64 {
        let bytes = self.bytes.get(at..).and_then(|rest| rest.first_chunk());
        bytes.map_or(0, |bytes| u64::from_le_bytes(*bytes))
    }

    /// From the place to which a member points; empty if that is outside.
    fn from(&self, member: usize) -> &[u8] {
        let offset = self.word(member).wrapping_sub(self.address);
        let offset = usize::try_from(offset).unwrap_or(usize::MAX);
        self.bytes.get(offset..).unwrap_or_default()
    }

    pub fn instructions(&self) -> Vec<u32> {
        let count = (self.word(prototype::HEADER as usize * 8) >> 32) as usize;
        let code = self.bytes.get(prototype::BYTES as usize..);
        let (code, _) = code.unwrap_or_default().as_chunks();
        let code = code.iter().take(count);
        code.map(|bytes| u32::from_le_bytes(*bytes)).collect()
    }

    /// The address of a constant that is an object; they grow down.
    pub fn constant(&self, number: u32) -> Option<u64> {
        let end = self.word(CONSTANTS).wrapping_sub(self.address);
        let at = end.checked_sub((u64::from(number) + 1) * 8)?;
        Some(self.word(usize::try_from(at).ok()?)).filter(|address| *address != 0)
    }

    /// The lines of its instructions.
    pub fn line_table(&self) -> &[u8] {
        self.from(LINE_TABLE)
    }

    pub fn upvalue_names(&self) -> &[u8] {
        self.from(UPVALUE_NAMES)
    }

    pub fn variables(&self) -> &[u8] {
        self.from(VARIABLES)
    }
}
