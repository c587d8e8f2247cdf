//! What stays of a file, and where it goes.
//!
//! ```text
//! ELF header │ program headers │ kept ranges, in the order of the file │ compressed sections │ section headers
//! ```
//!
//! The sections keep their numbers and names, so that every link between them, and every symbol's
//! section, stays right as it is. A dropped section keeps its address *and its size*, without bytes
//! (`NOBITS`): that is how distributions make their debug files, which debuggers, symbolizers and
//! Parca's server (it reads such files from debuginfod) know, while with a size of 0 no tool can
//! tell any more which section an address is in.
//!
//! A kept range moves by a multiple of [`ALIGNMENT`], so what was aligned stays so. Segments that
//! are loaded keep their offset in the original file, without bytes, since tools reckon with it from
//! addresses of a process to those of the file.

use std::fs::File;
use std::io;
use std::ops::Range;

use object::elf::{
    PT_LOAD, PT_PHDR, SHF_ALLOC, SHF_COMPRESSED, SHT_NOBITS, SHT_NULL, SHT_STRTAB, SHT_SYMTAB,
};
use object::pod;
use profcol_elf::{Elf, Header, LE, ProgramHeader, SectionHeader, Source, has_data};

use crate::compress::{self, Compressed};
use crate::elsewhere::{Elsewhere, elsewhere};
use crate::keep::{Dwarf, is_dwarf, is_kept};
use crate::{Extraction, Refused};

/// As much as the tables in kept sections ask for.
const ALIGNMENT: u64 = 8;
/// What stands between kept sections and is not longer is kept too: it is padding, and notes that
/// belong together stay together.
const GAP: u64 = 64;

/// What a file is good for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Contents {
    /// All of it, or as good as.
    pub dwarf: bool,
    pub symbols: bool,
    /// Not only those for the dynamic linker.
    pub all_symbols: bool,
    pub go_functions: bool,
}

#[derive(Debug)]
pub struct Plan {
    /// The header and the program headers.
    pub(crate) head: Vec<u8>,
    pub(crate) moves: Vec<Move>,
    pub(crate) packed: Vec<Packed>,
    pub(crate) sections: Vec<SectionHeader>,
    pub(crate) sections_at: u64,
    /// Of the file.
    length: u64,
    pub(crate) contents: Contents,
    elsewhere: Option<Elsewhere>,
}

/// A range of the file, and where it begins in the result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Move {
    pub from: Range<u64>,
    pub to: u64,
}

/// A section that is compressed, and where it begins in the result.
#[derive(Debug)]
pub(crate) struct Packed {
    /// Its number.
    number: usize,
    pub section: Compressed,
    pub to: u64,
}

impl Plan {
    /// Keeps what names code.
    pub fn strip(source: &(impl Source + ?Sized)) -> Result<Self, Refused> {
        Self::keeping(source, Dwarf::All)
    }

    /// Keeps what names code, with so much DWARF.
    pub fn keeping(source: &(impl Source + ?Sized), dwarf: Dwarf) -> Result<Self, Refused> {
        let (elf, elsewhere, dwarf) = read(source, dwarf)?;
        Self::of(elf, elsewhere, dwarf, Vec::new())
    }

    /// The same with the DWARF compressed, or where none is kept, with the symbols compressed. None where
    /// that would have more than `limit` bytes, or is asked to stop. It reads all of what is compressed.
    pub fn compressed(
        source: &(impl Source + ?Sized),
        dwarf: Dwarf,
        limit: u64,
        goes_on: &dyn Fn() -> bool,
    ) -> Result<Option<Self>, Refused> {
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

    /// Keeps everything.
    pub fn whole(source: &(impl Source + ?Sized)) -> Result<Self, Refused> {
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
        elsewhere: Option<Elsewhere>,
        dwarf: Dwarf,
        mut packed: Vec<Packed>,
    ) -> Result<Self, Refused> {
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
                Some(_) => Refused::OnlySplit,
                None => Refused::NoNames,
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

    /// Where the DWARF is that was left out.
    pub fn elsewhere(&self) -> Option<Elsewhere> {
        self.elsewhere
    }

    /// Where the padding ends that is there behind the kept ranges.
    pub(crate) fn padding_end(&self, at: u64) -> u64 {
        let next = self
            .packed
            .iter()
            .map(|packed| packed.to)
            .find(|&to| to > at);
        next.unwrap_or(self.sections_at)
    }

    /// Bytes of the result.
    pub fn size(&self) -> u64 {
        self.sections_at + size_of_val(&self.sections[..]) as u64
    }

    /// The result. The file has to be the one that the plan was made of.
    pub fn extract(self, file: File) -> io::Result<Extraction> {
        Extraction::new(self, file)
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

/// How much of the DWARF is kept, too: none where the greater part of it is in another file.
fn read(
    source: &(impl Source + ?Sized),
    dwarf: Dwarf,
) -> Result<(Elf, Option<Elsewhere>, Dwarf), Refused> {
    let elf = Elf::read(source)?;
    let elsewhere = elsewhere(source, &elf);
    let dwarf = elsewhere.map_or(dwarf, |_| Dwarf::None);
    Ok((elf, elsewhere, dwarf))
}

/// The numbers of the sections that may be compressed: those that are not loaded, and not so already.
/// None where two of them overlap, so that no file has one part of it compressed again and again.
fn compressible(elf: &Elf, dwarf: Dwarf) -> Vec<usize> {
    const NEVER: u64 = SHF_ALLOC as u64 | SHF_COMPRESSED as u64;
    /// What is smaller is not worth its header.
    const LEAST: u64 = 4096;
    let is_meant = |section: &SectionHeader| match dwarf {
        Dwarf::All | Dwarf::Lines => elf.name(section).starts_with(b".debug_"),
        Dwarf::None => [SHT_SYMTAB, SHT_STRTAB].contains(&section.sh_type.get(LE)),
    };
    let is_compressible = |(number, section): &(usize, &SectionHeader)| {
        *number != elf.names_section
            && has_data(section)
            && section.sh_size.get(LE) >= LEAST
            && section.sh_flags.get(LE) & NEVER == 0
            && is_meant(section)
            && is_kept(elf.name(section), section, dwarf, &mut Contents::default())
    };
    let sections = elf.sections.iter().enumerate().filter(is_compressible);
    let mut found: Vec<_> = sections
        .map(|(number, section)| (section.sh_offset.get(LE), section.sh_size.get(LE), number))
        .collect();
    found.sort_unstable();
    let overlap = |pair: &[(u64, u64, usize)]| match pair {
        [(offset, size, _), (next, ..)] => offset.saturating_add(*size) > *next,
        _ => false,
    };
    if found.windows(2).any(overlap) {
        return Vec::new();
    }
    found.into_iter().map(|(_, _, number)| number).collect()
}

/// Puts the ranges one behind the other; those that overlap or almost touch become one, so that the
/// result is never much larger than the file.
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
        // As far behind a multiple as in the file.
        at = at.next_multiple_of(ALIGNMENT) + from.start % ALIGNMENT;
        let to = at;
        at += from.end - from.start;
        Move { from, to }
    };
    kept.into_iter().map(place).collect()
}

/// Where bytes of the file are in the result, if all of them are there.
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

/// What becomes of a section whose bytes are dropped.
#[derive(Clone, Copy)]
enum Dropped {
    /// It keeps its size, so that every address is still in a section.
    NoBits,
    /// Where other DWARF is kept: Go's library reads none where one section has a size and no bytes.
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
