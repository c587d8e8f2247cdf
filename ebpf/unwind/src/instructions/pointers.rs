//! Code addresses in data, such as vtables and callbacks.

use crate::ElfCode;
use profcol_elf::{Extent, Segment, Source};

use crate::gaps::Gaps;

/// Maximum amount of data to search.
const MAX_DATA: u64 = 32 << 20;
const CHUNK: u64 = 64 << 10;
const MAX_POINTERS: usize = 1 << 18;

/// `R_X86_64_RELATIVE`, in the second of a relocation's three words; the third is the address.
const RELATIVE: u64 = 8;

/// Addresses in the gaps, sorted. In position-independent files they come from relocations alone, since other numbers
/// there are as small as addresses; with packed relocations (RELR) the data itself holds them.
pub fn to_code(elf: &ElfCode, source: &(impl Source + ?Sized), gaps: &Gaps) -> Vec<u64> {
    let first = gaps.as_slice().first().map_or(0, |gap| gap.start);
    let end = gaps.as_slice().last().map_or(0, |gap| gap.end());
    let by_relocations = elf.position_independent && elf.section(".relr.dyn").is_none();
    let mut before = 0;
    let mut left = MAX_DATA;
    let mut found = Vec::new();
    for (offset, size) in elf.loaded.iter().flat_map(|s| data(elf, s)) {
        let end_of_part = offset + size.min(left);
        left = left.saturating_sub(size);
        let mut at = offset;
        while at < end_of_part && found.len() < MAX_POINTERS {
            let part = Extent {
                what: "the data",
                offset: at,
                size: CHUNK.min(end_of_part - at),
            };
            at += CHUNK;
            let Ok(bytes) = part.read(source, CHUNK) else {
                break;
            };
            let (words, _) = bytes.as_chunks();
            for word in words {
                let word = u64::from_le_bytes(*word);
                let is_address = !by_relocations || before == RELATIVE;
                if is_address && (first..end).contains(&word) && gaps.holds(word) {
                    found.push(word);
                }
                before = word;
            }
        }
    }
    found.sort_unstable();
    found.dedup();
    found
}

/// Offsets and sizes of the non-code parts of a segment.
fn data(elf: &ElfCode, segment: &Segment) -> Vec<(u64, u64)> {
    let aligned = |offset: u64, end: u64| {
        let start = offset.next_multiple_of(8);
        (start < end).then(|| (start, end - start))
    };
    let (start, end) = (segment.file_offset, segment.file_end());
    if !elf.segments.contains(segment) {
        return aligned(start, end).into_iter().collect();
    }
    let Some(text) = elf.section(".text") else {
        return Vec::new();
    };
    let (text, text_end) = (
        text.extent.offset,
        text.extent.offset.saturating_add(text.extent.size),
    );
    [
        aligned(start, text.min(end)),
        aligned(text_end.max(start), end),
    ]
    .into_iter()
    .flatten()
    .collect()
}
