//! `.eh_frame` and `.debug_frame`: entries by address, and the rows of one entry.

use crate::UnwindTableError;
use crate::rules::{Bytes, Facts};
use crate::span::{Origin, Span};
use crate::writer::Step;
use gimli::{
    BaseAddresses, CommonInformationEntry, DebugFrame, EhFrame, FrameDescriptionEntry,
    LittleEndian, UnwindContext, UnwindSection,
};
use profcol_ebpf_common::rule::Rule;
use profcol_elf::Machine;

/// Maximum number of steps of one entry; functions of a megabyte have about ten thousand.
const MAX_STEPS: usize = 1 << 16;

/// Maximum length of a CIE: they have about thirty bytes, and each FDE that shares one runs through it again.
const MAX_COMMON: usize = 128;

/// One of the two sections.
pub(crate) struct Frames<'a, S> {
    machine: Machine,
    what: &'static str,
    section: S,
    bytes: &'a [u8],
    bases: BaseAddresses,
    /// The last CIE, since adjacent FDEs share one.
    common: Option<(usize, CommonInformationEntry<Bytes<'a>>)>,
    context: Box<UnwindContext<usize>>,
}

/// Differences between the two sections in the fields that this module reads itself.
pub(crate) trait Kind<'a>: UnwindSection<Bytes<'a>> {
    /// The CIE id, for 32-bit and for 64-bit lengths.
    const COMMON: [u64; 2];
    /// Whether the field is wider with 64-bit lengths.
    const WIDE: bool;
    fn origin(offset: u32) -> Origin;
}

impl<'a> Kind<'a> for EhFrame<Bytes<'a>> {
    const COMMON: [u64; 2] = [0, 0];
    const WIDE: bool = false;
    fn origin(offset: u32) -> Origin {
        Origin::EhFrame(offset)
    }
}

impl<'a> Kind<'a> for DebugFrame<Bytes<'a>> {
    const COMMON: [u64; 2] = [u32::MAX as u64, u64::MAX];
    const WIDE: bool = true;
    fn origin(offset: u32) -> Origin {
        Origin::DebugFrame(offset)
    }
}

impl<'a> Frames<'a, EhFrame<Bytes<'a>>> {
    pub fn eh_frame(machine: Machine, bytes: &'a [u8], bases: BaseAddresses) -> Self {
        let mut section = EhFrame::new(bytes, LittleEndian);
        section.set_address_size(8);
        section.set_vendor(vendor(machine));
        Self::new(machine, ".eh_frame", section, bytes, bases)
    }
}

impl<'a> Frames<'a, DebugFrame<Bytes<'a>>> {
    pub fn debug_frame(machine: Machine, bytes: &'a [u8]) -> Self {
        let mut section = DebugFrame::new(bytes, LittleEndian);
        section.set_address_size(8);
        section.set_vendor(vendor(machine));
        Self::new(
            machine,
            ".debug_frame",
            section,
            bytes,
            BaseAddresses::default(),
        )
    }
}

/// Removes aarch64's augmentation characters from CIEs: `B` for pointer authentication with key B, `G` for memory
/// tagging. Neither has data or changes a rule, but gimli does not know them.
pub(crate) fn forget_keys(machine: Machine, bytes: &mut [u8]) {
    /// After the length: the CIE id and the version.
    const BEFORE: usize = 5;
    /// Maximum length of an augmentation.
    const MAX_LETTERS: usize = 8;
    if machine != Machine::Aarch64 {
        return;
    }
    let mut rest = bytes;
    while let Some((length, others)) = rest.split_first_chunk_mut::<4>() {
        let Some((entry, others)) =
            others.split_at_mut_checked(u32::from_le_bytes(*length) as usize)
        else {
            return;
        };
        rest = others;
        let is_common = entry.starts_with(&[0; 4]) || entry.starts_with(&[0xff; 4]);
        let Some(content) = entry.get_mut(BEFORE..).filter(|_| is_common) else {
            continue;
        };
        let mut at = 0;
        while at < MAX_LETTERS && content.get(at).is_some_and(|&letter| letter != 0) {
            match content.get_mut(at..) {
                // The following bytes move up, and `DW_CFA_nop` fills the end of the entry.
                Some(letters @ [b'B' | b'G', ..]) => {
                    letters.rotate_left(1);
                    if let Some(last) = letters.last_mut() {
                        *last = 0;
                    }
                }
                _ => at += 1,
            }
        }
    }
}

fn vendor(machine: Machine) -> gimli::Vendor {
    match machine {
        Machine::X86_64 => gimli::Vendor::Default,
        Machine::Aarch64 => gimli::Vendor::AArch64,
    }
}

impl<'a, S: Kind<'a>> Frames<'a, S> {
    fn new(
        machine: Machine,
        what: &'static str,
        section: S,
        bytes: &'a [u8],
        bases: BaseAddresses,
    ) -> Self {
        Self {
            machine,
            what,
            section,
            bytes,
            bases,
            common: None,
            context: Box::default(),
        }
    }

    /// The spans of all entries. Skips unreadable entries; if the chain of entries breaks, rejects the file.
    pub fn spans(&mut self) -> Result<Vec<Span>, UnwindTableError> {
        let broken = UnwindTableError::Broken { what: self.what };
        let mut spans = Vec::new();
        let mut at = 0;
        while at < self.bytes.len() {
            let Some(entry) = self.entry(at) else {
                return Err(broken);
            };
            if entry.describes_code
                && let Ok(offset) = u32::try_from(at)
                && let Some((start, end)) = self.range(offset)
            {
                spans.push(Span {
                    start,
                    end,
                    origin: S::origin(offset),
                });
            }
            at = entry.end;
        }
        Ok(spans)
    }

    /// The entry's kind and end. Linkers may leave terminators in the middle, which have no content.
    fn entry(&self, at: usize) -> Option<Entry> {
        let number = |at: usize, length: usize| {
            let bytes = self.bytes.get(at..at.checked_add(length)?)?;
            let mut number = [0; 8];
            number[..length].copy_from_slice(bytes);
            Some(u64::from_le_bytes(number))
        };
        let short = number(at, 4)?;
        let wide = short == u64::from(u32::MAX);
        let (start, length) = if wide {
            (at + 12, number(at + 4, 8)?)
        } else {
            (at + 4, short)
        };
        let end = start.checked_add(usize::try_from(length).ok()?)?;
        if end > self.bytes.len() {
            return None;
        }
        let id = number(start, if wide && S::WIDE { 8 } else { 4 });
        let describes_code = length > 0 && id? != S::COMMON[usize::from(wide)];
        Some(Entry {
            describes_code,
            end,
        })
    }

    /// The addresses that an entry describes.
    pub fn range(&mut self, offset: u32) -> Option<(u64, u64)> {
        let fde = self.parse(offset)?;
        let start = fde.initial_address();
        Some((start, start.saturating_add(fde.len())))
    }

    fn parse(&mut self, offset: u32) -> Option<FrameDescriptionEntry<Bytes<'a>>> {
        let partial = self
            .section
            .partial_fde_from_offset(&self.bases, S::Offset::from(offset as usize))
            .ok()?;
        let common = &mut self.common;
        partial
            .parse(|section, bases, offset| {
                let at = gimli::UnwindOffset::into(offset);
                if let Some((known, entry)) = common
                    && *known == at
                {
                    return Ok(entry.clone());
                }
                let entry = section.cie_from_offset(bases, offset)?;
                if entry.entry_len() > MAX_COMMON {
                    return Err(gimli::Error::OffsetOutOfBounds(at as u64));
                }
                *common = Some((at, entry.clone()));
                Ok(entry)
            })
            .ok()
    }

    /// The steps of the entry from `start` to `end`.
    pub fn steps(&mut self, offset: u32, start: u64, end: u64, steps: &mut Vec<Step>) {
        let mut push = |at: u64, rule: Rule| {
            let step = Step {
                at: at.max(start),
                rule: rule.encode(),
            };
            if steps.last().is_none_or(|last| last.rule != step.rule) {
                steps.push(step);
            }
            steps.len() < MAX_STEPS
        };
        let Some(fde) = self.parse(offset) else {
            push(start, Rule::Unsupported);
            return;
        };
        let mut at = fde.initial_address();
        let table = fde.rows(&self.section, &self.bases, &mut self.context);
        let Ok(mut table) = table else {
            push(start, Rule::Unsupported);
            return;
        };
        while at < end {
            let row = match table.next_row() {
                Ok(Some(row)) => row,
                Ok(None) => break,
                Err(_) => {
                    push(at, Rule::Unsupported);
                    break;
                }
            };
            at = row.end_address();
            if at <= start || row.start_address() >= at || row.start_address() >= end {
                continue;
            }
            let rule = Facts {
                machine: self.machine,
                section: self.bytes,
                row,
                return_address: fde.cie().return_address_register(),
                signal: fde.is_signal_trampoline(),
            }
            .rule();
            if !push(row.start_address(), rule) {
                push(at, Rule::Unsupported);
                break;
            }
        }
    }
}

struct Entry {
    describes_code: bool,
    end: usize,
}
