//! The CodeBlob that contains an address.

use super::{CodeCache, HotspotError, Layout, code_address};
use crate::interpreter::{BLOCK_BYTES, BlockMemory};
use crate::{barrier_var, barrier_var_u32};

/// Each hop except the last one crosses 254 segments, 32 KiB of code.
const MAX_HOPS: u32 = 32;

/// A stub with a frame sets it up within these bytes.
const STUB_PROLOGUE_BYTES: u64 = 32;

/// Marks a free segment in the segment map.
const FREE: u64 = 0xff;

/// Prefixes of names.
const NMETHOD: u64 = u64::from_le_bytes(*b"nmethod\0");
const NATIVE_NMETHOD: u64 = u64::from_le_bytes(*b"native n");
const VTABLE_STUB: u64 = u64::from_le_bytes(*b"vtable c");
const ADAPTER: u64 = u64::from_le_bytes(*b"I2C/C2I ");
const METHOD_HANDLES: u64 = u64::from_le_bytes(*b"MethodHa");

/// The parts of a CodeBlob that unwinding needs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Blob {
    pub address: u64,
    pub code_begin: u64,
    pub code_end: u64,
    /// With the return address; 0 if the code has no frame, or a special one.
    pub frame_bytes: u64,
    /// The code offset at which the frame is complete; not for all kinds.
    pub frame_complete: u64,
    /// One of [`kind`].
    pub kind: u32,
}

pub mod kind {
    pub const STUB: u32 = 0;
    pub const NMETHOD: u32 = 1;
    /// The wrapper of a native method.
    pub const NATIVE_NMETHOD: u32 = 2;
    /// Code that leaves the return address on top of the stack.
    pub const FRAMELESS: u32 = 3;
    /// Between interpreted and compiled code: it moves the return address and the words above.
    pub const ADAPTER: u32 = 4;
}

impl Blob {
    pub fn is_compiled(&self) -> bool {
        self.kind == kind::NMETHOD || self.kind == kind::NATIVE_NMETHOD
    }

    /// The number of bytes at the start of the code that set up its frame.
    #[inline(always)]
    pub(super) fn prologue_bytes(&self) -> u64 {
        if self.is_compiled() {
            self.frame_complete
        } else if self.frame_bytes > 0 {
            STUB_PROLOGUE_BYTES
        } else {
            0
        }
    }

    #[inline(always)]
    pub fn find(
        layout: &Layout,
        cache: &CodeCache,
        pc: u64,
        memory: &mut impl BlockMemory,
    ) -> Result<Self, HotspotError> {
        let address = address_of(layout, cache, pc, memory)?;
        if !memory.load_block(address, BLOCK_BYTES) {
            return Err(HotspotError::Memory);
        }
        let name = member(memory, layout.blob_name);
        let mut code_begin = member(memory, layout.blob_code_begin);
        let mut code_end = member(memory, layout.blob_code_end);
        if layout.code_address == code_address::OFFSET {
            code_begin = address.wrapping_add(code_begin & 0xffff_ffff);
            code_end = address.wrapping_add(code_end & 0xffff_ffff);
        }
        let frame_size = member(memory, layout.blob_frame_size) as u32 as i32;
        let frame_complete = member(memory, layout.blob_frame_complete) as u32;
        let frame_complete =
            ((frame_complete << layout.frame_complete_shift) as i32) >> layout.frame_complete_shift;
        let kind = match memory.word(name) {
            Some(NMETHOD) => kind::NMETHOD,
            Some(NATIVE_NMETHOD) => kind::NATIVE_NMETHOD,
            Some(VTABLE_STUB | METHOD_HANDLES) => kind::FRAMELESS,
            Some(ADAPTER) => kind::ADAPTER,
            Some(_) => kind::STUB,
            None => return Err(HotspotError::Memory),
        };
        Ok(Self {
            address,
            code_begin,
            code_end,
            frame_bytes: (frame_size.max(0) as u64) << 3,
            frame_complete: frame_complete.max(0) as u64,
            kind,
        })
    }
}

/// Follows the segment map back to the start of the blob.
#[inline(always)]
fn address_of(
    layout: &Layout,
    cache: &CodeCache,
    pc: u64,
    memory: &mut impl BlockMemory,
) -> Result<u64, HotspotError> {
    const WITHIN: u64 = BLOCK_BYTES as u64 - 1;
    let heap = cache.heap(pc).ok_or(HotspotError::NoBlob)?;
    // Copied, or the verifier would process the loop once for each heap.
    let start = barrier_var(heap.range.start);
    let shift = barrier_var_u32(heap.segment_shift) & 31;
    let segment_map = barrier_var(heap.segment_map);
    let mut segment = (pc - start) >> shift;
    let mut loaded = 1;
    for _ in 0..MAX_HOPS {
        let at = segment_map.wrapping_add(segment);
        // An aligned block does not cross a page boundary.
        if at & !WITHIN != loaded {
            loaded = at & !WITHIN;
            if !memory.load_block(loaded, BLOCK_BYTES) {
                return Err(HotspotError::Memory);
            }
        }
        let word = memory.block_word(((at & WITHIN) >> 3) as u32);
        let hop = word >> ((at & 7) << 3) & 0xff;
        if hop == 0 {
            let block = start + (segment << shift);
            return Ok(block.wrapping_add(layout.heap_block_bytes.into()));
        }
        if hop == FREE || hop > segment {
            return Err(HotspotError::NoBlob);
        }
        segment -= hop;
    }
    Err(HotspotError::NoBlob)
}

/// The bytes at an offset of the loaded block, up to the end of their word.
#[inline(always)]
fn member(memory: &impl BlockMemory, offset: u16) -> u64 {
    let offset = u32::from(offset);
    memory.block_word(offset >> 3) >> ((offset & 7) << 3)
}
