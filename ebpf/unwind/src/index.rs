//! Builds single pages of a table, for files whose whole table is too large compared with the code that runs.
//!
//! Linkers write a binary search table of all entries of `.eh_frame`, for C++ exceptions. It leads to the
//! entries of a page without reading the rest of the file. Only offsets are kept in memory.
//!
//! ```text
//! .eh_frame_hdr   version and encodings, address of .eh_frame, count
//!                 start of the code, address of the entry     (both relative to the header)
//! ```

use crate::cfi::{Frames, forget_keys};
use crate::code::ElfCode;
use crate::overlay::{Decode, Overlay};
use crate::rules::Bytes;
use crate::span::{Origin, Span, Spans};
use crate::table::Table;
use crate::window::Window;
use crate::writer::{Step, Writer};
use crate::{UnwindTableError, plt};
use gimli::BaseAddresses;
use profcol_ebpf_common::rule::Rule;
use profcol_ebpf_common::table::{PAGE_SHIFT, PAGE_SIZE};
use profcol_elf::{Extent, Machine, Segment, Source};
use std::ops::Range;

const HEADER: u64 = 12;
/// Version 1; 32-bit addresses, relative to the field or to the header. Linkers write no others.
const ENCODING: [u8; 4] = [1, 0x1b, 0x03, 0x3b];
const PAIR: u64 = 8;

/// Entries before a page that may extend into it. Only split functions cause more than one.
const BEFORE: u64 = 4;

/// Maximum size of one entry. The largest seen belong to functions of a megabyte.
const MAX_ENTRY: u64 = 1 << 20;
const MAX_COMMON: u64 = 4 << 10;

/// Maximum size of all entries read for one call: each row takes about five bytes.
const MAX_ENTRIES: usize = 4 << 20;

/// The location of a file's unwind information.
pub struct Index {
    machine: Machine,
    segments: Vec<Segment>,
    loaded: Vec<Segment>,
    /// Address and extent of the search table.
    header: u64,
    pairs: Extent,
    count: u64,
    stubs: Vec<(u64, u64, Rule)>,
}

impl Index {
    pub fn open(elf: &ElfCode, source: &(impl Source + ?Sized)) -> Result<Self, UnwindTableError> {
        let Some((address, part)) = elf.eh_frame_hdr else {
            return Err(UnwindTableError::Unsupported {
                why: "no search table",
            });
        };
        let head = Extent {
            size: HEADER,
            ..part
        }
        .read(source, HEADER)?;
        let (Some(encoding), Some(count)) = (head.first_chunk::<4>(), number(&head, 8)) else {
            return Err(UnwindTableError::Broken { what: part.what });
        };
        let size = u64::from(count) * PAIR;
        if *encoding != ENCODING || HEADER + size > part.size {
            return Err(UnwindTableError::Unsupported {
                why: "unknown search table format",
            });
        }
        Ok(Self {
            machine: elf.machine,
            segments: elf.segments.clone(),
            loaded: elf.loaded.clone(),
            header: address,
            pairs: Extent {
                offset: part.offset + HEADER,
                size,
                ..part
            },
            count: u64::from(count),
            stubs: plt::stubs(elf, source),
        })
    }

    /// The address range of the entry that covers this address.
    pub fn function(&self, source: &(impl Source + ?Sized), address: u64) -> Option<Range<u64>> {
        let behind = self.search(source, address).ok()?;
        let mut window = Window::new(source);
        let (start, entry) = self.pair(&mut window, behind.checked_sub(1)?).ok()?;
        let (entry_start, end) = self.entry(&mut window, entry)?.range(self.machine)?;
        (entry_start == start && address < end).then_some(start..end)
    }

    /// The longest gap between two entries, if it is at least this long.
    pub fn longest_gap(
        &self,
        source: &(impl Source + ?Sized),
        at_least: u64,
    ) -> Option<Range<u64>> {
        let mut window = Window::new(source);
        let mut longest: Option<Range<u64>> = None;
        let mut before = None;
        for index in 0..self.count {
            let (start, _) = self.pair(&mut window, index).ok()?;
            let needed = longest.as_ref().map_or(at_least, |gap| gap.end - gap.start);
            if let Some(before) = before.replace(start)
                && start.checked_sub(before).is_some_and(|size| size > needed)
            {
                let end = self.function(source, before).map_or(before, |it| it.end);
                if start.checked_sub(end).is_some_and(|size| size > needed) {
                    longest = Some(end..start);
                }
            }
        }
        longest
    }

    /// Builds the table of a range of pages.
    pub fn pages(
        &self,
        source: &(impl Source + ?Sized),
        first: u64,
        count: u64,
    ) -> Result<Table, UnwindTableError> {
        let start = first.saturating_mul(PAGE_SIZE);
        let end = start.saturating_add(count.saturating_mul(PAGE_SIZE));
        let mut writer = Writer::new(start);
        for segment in &self.segments {
            let from = segment.file_offset.max(start);
            let to = segment.file_end().min(end);
            if from >= to {
                continue;
            }
            let part = Segment {
                file_offset: from,
                file_size: to - from,
                memory_size: to - from,
                address: segment.address + (from - segment.file_offset),
            };
            let mut entries = Entries {
                machine: self.machine,
                entries: Vec::new(),
                fixed: Vec::new(),
            };
            let spans = self.spans(source, &part, &mut entries)?;
            Overlay::new(&part, &mut entries, &mut writer).run(spans.as_slice())?;
        }
        let mut table = writer.finish(end)?;
        debug_assert!(table.pages.len() as u64 == count && table.first_page << PAGE_SHIFT == start);
        table.pages.truncate(count as usize);
        Ok(table)
    }

    fn spans(
        &self,
        source: &(impl Source + ?Sized),
        part: &Segment,
        entries: &mut Entries,
    ) -> Result<Spans, UnwindTableError> {
        let mut window = Window::new(source);
        let behind = self.search(source, part.address)?;
        let mut spans = Vec::new();
        let mut read = 0;
        // The last of them begins after the pages.
        let most = behind.saturating_add(part.file_size);
        for index in behind.saturating_sub(BEFORE)..self.count.min(most) {
            let (start, address) = self.pair(&mut window, index)?;
            if start >= part.end() {
                break;
            }
            let Some(entry) = self.entry(&mut window, address) else {
                continue;
            };
            read += entry.bytes.len();
            if read > MAX_ENTRIES {
                return Err(UnwindTableError::TooLarge {
                    what: "the unwind information of some pages",
                    size: read as u64,
                    limit: MAX_ENTRIES as u64,
                });
            }
            let Some((entry_start, end)) = entry.range(self.machine) else {
                continue;
            };
            if entry_start != start || end <= part.address {
                continue;
            }
            spans.push(Span {
                start: start.max(part.address),
                end: end.min(part.end()),
                origin: Origin::EhFrame(entries.entries.len() as u32),
            });
            entries.entries.push(entry);
        }
        let mut spans = Spans::new(spans);
        let stubs = self.stubs.iter().enumerate();
        spans.fill(
            stubs
                .map(|(number, &(start, end, _))| Span {
                    start: start.max(part.address),
                    end: end.min(part.end()),
                    origin: Origin::Fixed(number as u32),
                })
                .collect(),
        );
        entries.fixed = self.stubs.iter().map(|&(_, _, rule)| rule).collect();
        Ok(spans)
    }

    /// The index of the first pair after the address.
    fn search(
        &self,
        source: &(impl Source + ?Sized),
        address: u64,
    ) -> Result<u64, UnwindTableError> {
        let (mut low, mut high) = (0, self.count);
        while low < high {
            let middle = low + (high - low) / 2;
            let pair = self.pair_extent(middle).read(source, PAIR)?;
            if self.start(&pair)? <= address {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        Ok(low)
    }

    fn pair_extent(&self, index: u64) -> Extent {
        Extent {
            offset: self.pairs.offset + index * PAIR,
            size: PAIR,
            ..self.pairs
        }
    }

    fn start(&self, pair: &[u8]) -> Result<u64, UnwindTableError> {
        self.relative(pair, 0)
    }

    fn relative(&self, pair: &[u8], at: usize) -> Result<u64, UnwindTableError> {
        let Some(distance) = number(pair, at) else {
            return Err(UnwindTableError::Broken {
                what: self.pairs.what,
            });
        };
        Ok(self.header.wrapping_add_signed(i64::from(distance as i32)))
    }

    /// The start of the code and the address of the entry.
    fn pair<S: Source + ?Sized>(
        &self,
        window: &mut Window<'_, S>,
        index: u64,
    ) -> Result<(u64, u64), UnwindTableError> {
        let what = self.pairs.what;
        let pair = window.get(self.pair_extent(index).offset, PAIR);
        let pair = pair.ok_or(UnwindTableError::Broken { what })?;
        Ok((self.relative(pair, 0)?, self.relative(pair, 4)?))
    }

    /// The FDE at this address together with its CIE.
    fn entry<S: Source + ?Sized>(&self, window: &mut Window<'_, S>, address: u64) -> Option<Entry> {
        let segment = self.loaded.iter().find(|segment| segment.holds(address))?;
        let offset = segment.file_offset + (address - segment.address);
        let mut own = framed(window, offset, MAX_ENTRY)?;
        let back = u64::from(number(&own, 4)?);
        let mut bytes = framed(window, (offset + 4).checked_sub(back)?, MAX_COMMON)?;
        forget_keys(self.machine, &mut bytes);
        let at = u32::try_from(bytes.len()).ok()?;
        own.get_mut(4..8)?.copy_from_slice(&(at + 4).to_le_bytes());
        bytes.append(&mut own);
        Some(Entry {
            bytes,
            at,
            // The base makes addresses relative to the FDE resolve correctly.
            base: address.wrapping_sub(u64::from(at)),
        })
    }
}

/// An entry including its length field.
fn framed<S: Source + ?Sized>(
    window: &mut Window<'_, S>,
    offset: u64,
    limit: u64,
) -> Option<Vec<u8>> {
    let length = u64::from(number(window.get(offset, 4)?, 0)?);
    if length < 8 || length > limit {
        return None;
    }
    window.get(offset, 4 + length).map(<[u8]>::to_vec)
}

fn number(bytes: &[u8], at: usize) -> Option<u32> {
    let bytes = bytes.get(at..)?.first_chunk()?;
    Some(u32::from_le_bytes(*bytes))
}

/// A section with a single FDE.
struct Entry {
    bytes: Vec<u8>,
    /// The offset of the FDE, after its CIE.
    at: u32,
    base: u64,
}

impl Entry {
    fn frames(&self, machine: Machine) -> Frames<'_, gimli::EhFrame<Bytes<'_>>> {
        let bases = BaseAddresses::default().set_eh_frame(self.base);
        Frames::eh_frame(machine, &self.bytes, bases)
    }

    fn range(&self, machine: Machine) -> Option<(u64, u64)> {
        self.frames(machine).range(self.at)
    }
}

/// The entries of one page.
struct Entries {
    machine: Machine,
    entries: Vec<Entry>,
    fixed: Vec<Rule>,
}

impl Decode for Entries {
    fn steps(&mut self, span: &Span, end: u64, steps: &mut Vec<Step>) {
        match span.origin {
            Origin::EhFrame(index) => {
                if let Some(entry) = self.entries.get(index as usize) {
                    let mut frames = entry.frames(self.machine);
                    frames.steps(entry.at, span.start, end, steps);
                }
            }
            Origin::Fixed(number) => {
                let rule = self.fixed.get(number as usize).copied();
                steps.push(Step {
                    at: span.start,
                    rule: rule.unwrap_or(Rule::Gap).encode(),
                });
            }
            Origin::Go(_) | Origin::DebugFrame(_) => {}
        }
    }
}
