//! The code cache of a process.

use profcol_ebpf_common::interpreter::hotspot::{AddressRange, CodeCache, CodeHeap, MAX_HEAPS};

use super::layout::Layout;
use super::members::Heaps;
use super::stubs;
use super::tables::string;
use crate::FunctionError;
use crate::memory::Memory;

/// Maximum size of a heap; the code cache has 2 GiB at most.
const MAX_HEAP_BYTES: u64 = 1 << 32;
/// Valid values of log2 of the segment size, which is always 7.
const SEGMENT_SHIFTS: std::ops::RangeInclusive<u32> = 4..=16;
/// Maximum number of blobs created at startup.
const MAX_BLOBS: u32 = 512;

/// The prefix of the blob's name in all versions that have it.
const CONTINUATION: &str = "StubRoutines (continuation";

impl Layout {
    /// The code cache of a process; None while the runtime starts.
    pub fn code_cache(
        &self,
        memory: &impl Memory,
        bias: u64,
    ) -> Result<Option<CodeCache>, FunctionError> {
        read(self, memory, bias)
    }
}

fn read(
    layout: &Layout,
    memory: &impl Memory,
    bias: u64,
) -> Result<Option<CodeCache>, FunctionError> {
    let members = &layout.cache;
    let global = |address: u64| memory.word(address.wrapping_add(bias));
    let queue = global(members.interpreter)?;
    if queue == 0 || global(members.call_stub_return)? == 0 {
        return Ok(None);
    }
    let buffer = memory.word(queue.wrapping_add(members.queue_buffer.into()))?;
    let limit = memory.word(queue.wrapping_add(members.queue_limit.into()))? as u32;
    let mut cache = CodeCache {
        interpreter: AddressRange {
            start: buffer,
            end: buffer.wrapping_add(limit.into()),
        },
        ..CodeCache::default()
    };
    let addresses = heaps(layout, memory, bias)?;
    if addresses.is_empty() {
        return Ok(None);
    }
    for (heap, address) in cache.heaps.iter_mut().zip(addresses) {
        *heap = read_heap(layout, memory, address)?;
    }
    let used = || cache.heaps.iter().filter(|heap| heap.range.end > 0);
    cache.range = AddressRange {
        start: used().map(|heap| heap.range.start).min().unwrap_or(0),
        end: used().map(|heap| heap.range.end).max().unwrap_or(0),
    };
    if cache.range.end - cache.range.start > MAX_HEAP_BYTES {
        return Err(FunctionError::Invalid("the range of the code cache"));
    }
    if !cache.holds(buffer) {
        return Ok(None);
    }
    for heap in &cache.heaps {
        if let Some(range) = continuation(layout, memory, heap) {
            cache.continuation = range;
        }
    }
    Ok(Some(cache))
}

fn heaps(layout: &Layout, memory: &impl Memory, bias: u64) -> Result<Vec<u64>, FunctionError> {
    let (array, length, data) = match layout.cache.heaps {
        Heaps::Single { heap } => {
            let heap = memory.word(heap.wrapping_add(bias))?;
            return Ok(if heap == 0 { Vec::new() } else { vec![heap] });
        }
        Heaps::Array {
            array,
            length,
            data,
        } => (array, length, data),
    };
    let array = memory.word(array.wrapping_add(bias))?;
    if array == 0 {
        return Ok(Vec::new());
    }
    let length = memory.word(array.wrapping_add(length.into()))? as u32;
    if length as usize > MAX_HEAPS {
        return Err(FunctionError::Invalid("the number of heaps"));
    }
    let data = memory.word(array.wrapping_add(data.into()))?;
    let elements = (0..u64::from(length)).map(|number| data.wrapping_add(number * 8));
    elements.map(|element| Ok(memory.word(element)?)).collect()
}

fn read_heap(
    layout: &Layout,
    memory: &impl Memory,
    address: u64,
) -> Result<CodeHeap, FunctionError> {
    let members = &layout.cache;
    let space = address.wrapping_add(members.heap_memory.into());
    let map = address.wrapping_add(members.heap_segment_map.into());
    let start = memory.word(space.wrapping_add(members.space_low.into()))?;
    let end = memory.word(space.wrapping_add(members.space_high.into()))?;
    let shift = memory.word(address.wrapping_add(members.heap_segment_shift.into()))? as u32;
    let is_plausible = start < end && end - start <= MAX_HEAP_BYTES;
    if !is_plausible || !SEGMENT_SHIFTS.contains(&shift) {
        return Err(FunctionError::Invalid("a heap of the code cache"));
    }
    Ok(CodeHeap {
        range: AddressRange { start, end },
        segment_map: memory.word(map.wrapping_add(members.space_low.into()))?,
        segment_shift: shift,
        unused: 0,
    })
}

/// The stubs to which the bottom frame of a virtual thread returns, if they are among the first blobs.
fn continuation(layout: &Layout, memory: &impl Memory, heap: &CodeHeap) -> Option<AddressRange> {
    let header = u64::from(layout.common.heap_block_bytes);
    let mut block = heap.range.start;
    for _ in 0..MAX_BLOBS {
        if !heap.range.holds(block) {
            return None;
        }
        // One half of the header is the length, the other a flag.
        let word = memory.word(block).ok()?;
        let (segments, is_used) = if header > 8 {
            (word, memory.word(block.wrapping_add(8)).ok()?)
        } else {
            (word & 0xffff_ffff, word >> 32)
        };
        if segments == 0 || segments > MAX_HEAP_BYTES {
            return None;
        }
        let blob = block.wrapping_add(header);
        if is_used & 1 != 0 {
            let name = memory
                .word(blob.wrapping_add(layout.common.blob_name.into()))
                .ok()?;
            if string(memory, name).ok()?.starts_with(CONTINUATION) {
                return stubs::code(layout, memory, blob).ok();
            }
        }
        block = block.checked_add(segments << heap.segment_shift)?;
    }
    None
}
