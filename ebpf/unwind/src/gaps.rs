//! The code without unwind information.

use std::ops::Range;

use crate::ElfCode;
use crate::span::Spans;
use profcol_elf::{Extent, Source};

/// Maximum amount of code without unwind information to analyze.
const MAX_CODE: u64 = 32 << 20;

/// Functions are separated by up to fifteen bytes of padding.
const PADDING: u64 = 16;

/// Code between two spans.
pub(crate) struct Gap {
    pub start: u64,
    pub bytes: Vec<u8>,
}

/// The code between spans and inside `within`, at most `limit` bytes.
pub(crate) fn between<S: Source + ?Sized>(
    elf: &ElfCode,
    source: &S,
    spans: &Spans,
    within: Range<u64>,
    limit: u64,
) -> impl Iterator<Item = Gap> {
    let mut left = limit;
    let gaps = elf.segments.iter().flat_map(move |segment| {
        let start = segment.address.max(within.start);
        let gaps = spans.gaps(start, segment.end().min(within.end));
        gaps.into_iter()
            .map(move |(start, end)| (segment, start, end))
    });
    gaps.filter_map(move |(segment, start, end)| {
        let size = end - start;
        if size < PADDING || size > left {
            return None;
        }
        left -= size;
        let part = Extent {
            what: "the code",
            offset: segment.file_offset + (start - segment.address),
            size,
        };
        let bytes = part.read(source, limit).ok()?;
        Some(Gap { start, bytes })
    })
}

impl Gap {
    pub fn end(&self) -> u64 {
        self.start.saturating_add(self.bytes.len() as u64)
    }
}

/// Sorted by start.
pub(crate) struct Gaps(Vec<Gap>);

impl Gaps {
    pub fn read(elf: &ElfCode, source: &(impl Source + ?Sized), spans: &Spans) -> Self {
        // A segment may also hold data, which would decode as code.
        let text = elf.section(".text");
        let text = text.map_or(0..u64::MAX, |text| {
            text.address..text.address.saturating_add(text.extent.size)
        });
        let mut gaps: Vec<Gap> = between(elf, source, spans, text, MAX_CODE).collect();
        gaps.sort_unstable_by_key(|gap| gap.start);
        Self(gaps)
    }

    pub fn as_slice(&self) -> &[Gap] {
        &self.0
    }

    /// The gap that contains the address, and the offset in it.
    pub fn find(&self, address: u64) -> Option<(usize, usize)> {
        let behind = self.0.partition_point(|gap| gap.start <= address);
        let index = behind.checked_sub(1)?;
        let gap = self.0.get(index)?;
        let offset = usize::try_from(address - gap.start).ok()?;
        (offset < gap.bytes.len()).then_some((index, offset))
    }

    pub fn holds(&self, address: u64) -> bool {
        self.find(address).is_some()
    }

    /// The code from this address to the end of its gap.
    pub fn bytes(&self, address: u64) -> &[u8] {
        let found = self.find(address);
        found
            .and_then(|(index, offset)| self.0.get(index)?.bytes.get(offset..))
            .unwrap_or_default()
    }

    /// The end of the gap that contains the address.
    pub fn end(&self, address: u64) -> u64 {
        address.saturating_add(self.bytes(address).len() as u64)
    }
}
