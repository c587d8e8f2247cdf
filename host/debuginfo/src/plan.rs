//! Decides which parts of a file to keep, and where they go.
//!
//! ```text
//! ELF header │ program headers │ kept ranges, in the order of the file │ compressed sections │ section headers
//! ```
//!
//! Sections keep their numbers and names, so that all links between them and the section of every symbol stay valid. A
//! dropped section keeps its address *and its size* but no bytes (`NOBITS`). Distributions build their debug files the
//! same way, so debuggers, symbolizers and Parca's server (which reads such files from debuginfod) support it; with a
//! size of 0 no tool could map an address to its section.
//!
//! A kept range moves by a multiple of [`ALIGNMENT`], which preserves its alignment. Loaded segments keep their file
//! offset, but without bytes, because tools use it to convert process addresses to file addresses.

use std::ops::Range;

use object::elf::{
    PT_LOAD, PT_PHDR, SHF_ALLOC, SHF_COMPRESSED, SHT_NOBITS, SHT_NULL, SHT_STRTAB, SHT_SYMTAB,
};
use object::pod;
use profcol_elf::{Elf, Header, LE, ProgramHeader, SectionHeader, Source, has_data};

use crate::compress::{self, Compressed};
use crate::error::ExtractError;
use crate::selection::{Contents, Dwarf, is_dwarf, is_kept};
use crate::split_dwarf::{ExternalDwarf, elsewhere};

/// The largest alignment that the tables in kept sections need.
const ALIGNMENT: u64 = 8;
/// Gaps of up to this size between kept sections are kept, too: they are padding, and it keeps related notes together.
const GAP: u64 = 64;

#[derive(Debug)]
pub struct Plan {
    /// The ELF header and the program headers.
    pub(crate) head: Vec<u8>,
    pub(crate) moves: Vec<Move>,
    pub(crate) packed: Vec<Packed>,
    pub(crate) sections: Vec<SectionHeader>,
    pub(crate) sections_at: u64,
    /// Size of the input file.
    length: u64,
    pub(crate) contents: Contents,
    elsewhere: Option<ExternalDwarf>,
}

/// A range of the file and its offset in the output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Move {
    pub from: Range<u64>,
    pub to: u64,
}

/// A compressed section and its offset in the output.
#[derive(Debug)]
pub(crate) struct Packed {
    /// Section number.
    number: usize,
    pub section: Compressed,
    pub to: u64,
}

impl Plan {
    /// Keeps the symbol information.
    pub fn strip(source: &(impl Source + ?Sized)) -> Result<Self, ExtractError> {
        Self::keeping(source, Dwarf::All)
    }

    /// Keeps the symbol information with the given amount of DWARF.
    pub fn keeping(source: &(impl Source + ?Sized), dwarf: Dwarf) -> Result<Self, ExtractError> {
        let (elf, elsewhere, dwarf) = read(source, dwarf)?;
        Self::of(elf, elsewhere, dwarf, Vec::new())
    }

    /// Like `keeping`, with the DWARF compressed, or the symbols if no DWARF is kept. `None` if the output would exceed
    /// `limit` bytes, or if asked to stop. Reads the sections to be compressed in full.
    pub fn compressed(
        source: &(impl Source + ?Sized),
        dwarf: Dwarf,
        limit: u64,
        goes_on: &dyn Fn() -> bool,
    ) -> Result<Option<Self>, ExtractError> {
        let (elf, elsewhere, dwarf) = read(source, dwarf)?;
        let mut packed = Vec::new();
        let mut size = 0;
        for number in compressible(&elf, dwarf) {
            let Some(section) = elf.sections.get(number) else {
                continue;
            };
            let extent = elf.extent("a section", section);
            let from = extent.inside(elf.length)?;
            let measured = Compressed::measure(source, section, from, goes_on);
            let measured = measured.map_err(|error| extent.unreadable(error))?;
            size += measured
                .as_ref()
                .map_or(extent.size, |section| section.size);
            if size > limit || !goes_on() {
                return Ok(None);
            }
            packed.extend(measured.map(|section| Packed {
                number,
                section,
                to: 0,
            }));
        }
        let plan = Self::of(elf, elsewhere, dwarf, packed)?;
        Ok((plan.size() <= limit).then_some(plan))
    }

    /// Keeps the whole file.
    pub fn whole(source: &(impl Source + ?Sized)) -> Result<Self, ExtractError> {
        let stripped = Self::strip(source)?;
        let length = stripped.length;
        let whole = Move {
            from: 0..length,
            to: 0,
        };
        Ok(Self {
            head: Vec::new(),
            sections: Vec::new(),
            sections_at: length,
            moves: vec![whole],
            packed: Vec::new(),
            ..stripped
        })
    }

    fn of(
        mut elf: Elf,
        elsewhere: Option<ExternalDwarf>,
        dwarf: Dwarf,
        mut packed: Vec<Packed>,
    ) -> Result<Self, ExtractError> {
        let mut contents = Contents::default();
        let mut kept = Vec::new();
        let mut dropped = vec![None; elf.sections.len()];
        for (number, section) in elf.sections.iter().enumerate() {
            let name = elf.name(section);
            if section.sh_type.get(LE) == SHT_NULL || !has_data(section) {
                continue;
            }
            if number != elf.names_section && !is_kept(name, section, dwarf, &mut contents) {
                if let Some(dropped) = dropped.get_mut(number) {
                    *dropped = Some(match dwarf == Dwarf::Lines && is_dwarf(name) {
                        true => Dropped::Empty,
                        false => Dropped::NoBits,
                    });
                }
                continue;
            }
            if packed.iter().any(|packed| packed.number == number) {
                continue;
            }
            kept.push(elf.extent("a section", section).inside(elf.length)?);
        }
        if contents == Contents::default() {
            return Err(match elsewhere {
                Some(_) => ExtractError::OnlySplit,
                None => ExtractError::NoNames,
            });
        }
        let head = size_of::<Header>() + size_of_val(&elf.programs[..]);
        let moves = lay_out(kept, head as u64);
        let mut end = moves.last().map_or(head as u64, Move::end);
        for packed in &mut packed {
            packed.to = end.next_multiple_of(compress::ALIGNMENT);
            end = packed.end();
        }
        let sections_at = end.next_multiple_of(ALIGNMENT);

        for program in &mut elf.programs {
            place_segment(program, &moves);
        }
        for (section, dropped) in elf.sections.iter_mut().zip(dropped) {
            place_section(section, dropped, head as u64, &moves);
        }
        for packed in &packed {
            if let Some(section) = elf.sections.get_mut(packed.number) {
                place_packed(section, packed);
            }
        }
        elf.header.e_phoff.set(LE, size_of::<Header>() as u64);
        elf.header.e_shoff.set(LE, sections_at);
        let mut bytes = Vec::with_capacity(head);
        bytes.extend_from_slice(pod::bytes_of(&elf.header));
        bytes.extend_from_slice(pod::bytes_of_slice(&elf.programs));
        Ok(Self {
            head: bytes,
            moves,
            packed,
            sections: elf.sections,
            sections_at,
            length: elf.length,
            contents,
            elsewhere,
        })
    }

    pub fn contents(&self) -> Contents {
        self.contents
    }

    /// The location of DWARF that was left out.
    pub fn elsewhere(&self) -> Option<ExternalDwarf> {
        self.elsewhere
    }

    /// The end of the padding after the kept ranges.
    pub(crate) fn padding_end(&self, at: u64) -> u64 {
        let next = self
            .packed
            .iter()
            .map(|packed| packed.to)
            .find(|&to| to > at);
        next.unwrap_or(self.sections_at)
    }

    /// Size of the output.
    pub fn size(&self) -> u64 {
        self.sections_at + size_of_val(&self.sections[..]) as u64
    }
}

impl Packed {
    pub fn end(&self) -> u64 {
        self.to + self.section.size
    }
}

impl Move {
    pub fn end(&self) -> u64 {
        self.to + (self.from.end - self.from.start)
    }
}

/// Also determines how much DWARF to keep: none if its main part is in another file.
fn read(
    source: &(impl Source + ?Sized),
    dwarf: Dwarf,
) -> Result<(Elf, Option<ExternalDwarf>, Dwarf), ExtractError> {
    let elf = Elf::read(source)?;
    let elsewhere = elsewhere(source, &elf);
    let dwarf = elsewhere.map_or(dwarf, |_| Dwarf::None);
    Ok((elf, elsewhere, dwarf))
}

/// The numbers of the sections to compress: not loaded and not compressed yet. Empty if any two overlap, so that no
/// byte range is compressed more than once.
fn compressible(elf: &Elf, dwarf: Dwarf) -> Vec<usize> {
    const NEVER: u64 = SHF_ALLOC as u64 | SHF_COMPRESSED as u64;
    /// Smaller sections do not justify the header.
    const MIN_BYTES: u64 = 4096;
    let is_meant = |section: &SectionHeader| match dwarf {
        Dwarf::All | Dwarf::Lines => elf.name(section).starts_with(b".debug_"),
        Dwarf::None => [SHT_SYMTAB, SHT_STRTAB].contains(&section.sh_type.get(LE)),
    };
    let is_compressible = |(number, section): &(usize, &SectionHeader)| {
        *number != elf.names_section
            && has_data(section)
            && section.sh_size.get(LE) >= MIN_BYTES
            && section.sh_flags.get(LE) & NEVER == 0
            && is_meant(section)
            && is_kept(elf.name(section), section, dwarf, &mut Contents::default())
    };
    let sections = elf.sections.iter().enumerate().filter(is_compressible);
    let mut candidates: Vec<_> = sections
        .map(|(number, section)| (section.sh_offset.get(LE), section.sh_size.get(LE), number))
        .collect();
    candidates.sort_unstable();
    let overlap = |pair: &[(u64, u64, usize)]| match pair {
        [(offset, size, _), (next, ..)] => offset.saturating_add(*size) > *next,
        _ => false,
    };
    if candidates.windows(2).any(overlap) {
        return Vec::new();
    }
    candidates
        .into_iter()
        .map(|(_, _, number)| number)
        .collect()
}

/// Lays out the ranges; overlapping or nearly adjacent ones are merged, so that the output is never much larger than
/// the file.
fn lay_out(mut kept: Vec<Range<u64>>, start: u64) -> Vec<Move> {
    kept.sort_unstable_by_key(|range| (range.start, range.end));
    kept.dedup_by(|next, range| {
        let is_one = next.start <= range.end.saturating_add(GAP);
        if is_one {
            range.end = range.end.max(next.end);
        }
        is_one
    });
    let mut at = start;
    let place = |from: Range<u64>| {
        // Keeps the offset modulo the alignment.
        at = at.next_multiple_of(ALIGNMENT) + from.start % ALIGNMENT;
        let to = at;
        at += from.end - from.start;
        Move { from, to }
    };
    kept.into_iter().map(place).collect()
}

/// The output offset of a range of the file, if the whole range is kept.
fn moved(moves: &[Move], offset: u64, size: u64) -> Option<u64> {
    let after = moves.partition_point(|moved| moved.from.start <= offset);
    let moved = moves.get(after.checked_sub(1)?)?;
    let is_inside = offset.checked_add(size)? <= moved.from.end;
    is_inside.then(|| moved.to + (offset - moved.from.start))
}

fn place_segment(program: &mut ProgramHeader, moves: &[Move]) {
    let (offset, size) = (program.p_offset.get(LE), program.p_filesz.get(LE));
    match program.p_type.get(LE) {
        PT_LOAD => program.p_filesz.set(LE, 0),
        PT_PHDR => program.p_offset.set(LE, size_of::<Header>() as u64),
        _ => match moved(moves, offset, size) {
            Some(to) => program.p_offset.set(LE, to),
            None => program.p_filesz.set(LE, 0),
        },
    }
}

fn place_packed(section: &mut SectionHeader, packed: &Packed) {
    let flags = section.sh_flags.get(LE) | u64::from(SHF_COMPRESSED);
    section.sh_flags.set(LE, flags);
    section.sh_addralign.set(LE, compress::ALIGNMENT);
    section.sh_offset.set(LE, packed.to);
    section.sh_size.set(LE, packed.section.size);
}

/// How to mark a section whose bytes are dropped.
#[derive(Clone, Copy)]
enum Dropped {
    /// Keeps its size, so that every address still maps to a section.
    NoBits,
    /// If other DWARF is kept: Go's library reads no DWARF if any section has a size but no bytes.
    Empty,
}

fn place_section(section: &mut SectionHeader, dropped: Option<Dropped>, head: u64, moves: &[Move]) {
    if let Some(dropped) = dropped {
        let flags = section.sh_flags.get(LE) & !u64::from(SHF_COMPRESSED);
        section.sh_flags.set(LE, flags);
        match dropped {
            Dropped::NoBits => section.sh_type.set(LE, SHT_NOBITS),
            Dropped::Empty => section.sh_size.set(LE, 0),
        }
    }
    if section.sh_type.get(LE) == SHT_NULL {
        return;
    }
    let (offset, size) = (section.sh_offset.get(LE), section.sh_size.get(LE));
    let to = has_data(section).then(|| moved(moves, offset, size));
    section.sh_offset.set(LE, to.flatten().unwrap_or(head));
}
