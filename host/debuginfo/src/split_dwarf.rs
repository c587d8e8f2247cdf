//! Detects whether the DWARF of a file is in another file.
//!
//! With `-gsplit-dwarf` compilers leave most of it in `.dwo` files, which may be packed into a `.dwp`; `dwz` moves the
//! common parts of several files into another one that they refer to. The rest is not enough to resolve functions
//! without that file, and some readers ignore all other symbols once they find it.

use std::io::{self, Read};

use object::elf::SHT_SYMTAB;
use profcol_elf::{Elf, ExtentReader, LE, SectionHeader, Source, has_data};

/// Where the DWARF is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExternalDwarf {
    /// In `.dwo` files or a `.dwp`.
    Split,
    /// In a file made by `dwz`.
    Common,
}

/// Limit of units: executables of gigabytes have fewer.
const MAX_UNITS: usize = 100_000;
/// Limit of bytes decompressed to walk the unit headers, in total.
const MAX_DECOMPRESSED: u64 = 64 << 20;
/// Limit of abbreviations, which are only needed for the older form of split DWARF.
const MAX_ABBREVIATIONS: u64 = 4 << 20;
/// Limit of abbreviations per unit: the root's comes first.
const NEAREST: usize = 4096;
/// Window size of the decompressor.
const WINDOW_LOG: u32 = 23;

/// `None` if the DWARF is in the file, or usable without the rest.
pub fn elsewhere<S: Source + ?Sized>(source: &S, elf: &Elf) -> Option<ExternalDwarf> {
    if has_skeleton(source, elf) {
        return Some(ExternalDwarf::Split);
    }
    let is_common = [&b".gnu_debugaltlink"[..], b".debug_sup"]
        .iter()
        .any(|name| elf.find(name).is_some());
    // Without a symbol table the rest of the DWARF is better than nothing.
    let is_symtab =
        |section: &SectionHeader| section.sh_type.get(LE) == SHT_SYMTAB && has_data(section);
    (is_common && elf.sections.iter().any(is_symtab)).then_some(ExternalDwarf::Common)
}

fn has_skeleton<S: Source + ?Sized>(source: &S, elf: &Elf) -> bool {
    let Some(mut info) = Bytes::of(source, elf, "info") else {
        return false;
    };
    let mut abbreviations = None;
    for _ in 0..MAX_UNITS {
        // Other code reports damaged sections.
        let Ok(Some(unit)) = info.unit() else {
            return false;
        };
        match unit {
            Unit::Skeleton => return true,
            Unit::Other => {}
            Unit::Old { described_at, code } => {
                // Before version 5 only split DWARF has `.debug_addr`.
                if elf.find_debug("addr").is_none() {
                    continue;
                }
                let abbreviations = abbreviations.get_or_insert_with(|| all(source, elf));
                let description = usize::try_from(described_at).ok();
                let description = description.and_then(|at| abbreviations.get(at..));
                let description = description.unwrap_or_default();
                let nearest = description.get(..NEAREST).unwrap_or(description);
                if names_dwo(nearest, code) {
                    return true;
                }
            }
        }
    }
    false
}

fn all<S: Source + ?Sized>(source: &S, elf: &Elf) -> Vec<u8> {
    let mut all = Vec::new();
    if let Some(bytes) = Bytes::of(source, elf, "abbrev") {
        // The part before an error is still usable.
        let _ = bytes.take(MAX_ABBREVIATIONS).read_to_end(&mut all);
    }
    all
}

/// Whether the entry with this abbreviation code has a `.dwo` name.
fn names_dwo(mut descriptions: &[u8], code: u64) -> bool {
    const DWO_NAME: u64 = 0x2130;
    const IMPLICIT_CONSTANT: u64 = 0x21;
    let mut next = || leb128(&mut descriptions);
    loop {
        let (Some(described), Some(_tag)) = (next(), next()) else {
            return false;
        };
        // The children flag.
        if described == 0 || next().is_none() {
            return false;
        }
        loop {
            let (Some(attribute), Some(form)) = (next(), next()) else {
                return false;
            };
            if form == IMPLICIT_CONSTANT && next().is_none() {
                return false;
            }
            match attribute {
                0 if described == code => return false,
                0 => break,
                DWO_NAME if described == code => return true,
                _ => {}
            }
        }
    }
}

/// A LEB128 number, truncated to 64 bits.
fn leb128(bytes: &mut &[u8]) -> Option<u64> {
    let mut number = 0;
    for shift in (0..).step_by(7) {
        let (&byte, rest) = bytes.split_first()?;
        *bytes = rest;
        number |= u64::from(byte & 0x7f).checked_shl(shift).unwrap_or(0);
        if byte & 0x80 == 0 {
            break;
        }
    }
    Some(number)
}

enum Unit {
    Skeleton,
    Other,
    /// Before version 5: the abbreviation offset, and the code of the first entry.
    Old {
        described_at: u64,
        code: u64,
    },
}

/// Sequential reader of a decompressed section.
enum Bytes<'s, S: ?Sized> {
    Plain(ExtentReader<'s, S>),
    Packed(io::Take<Box<dyn Read + 's>>),
}

impl<'s, S: Source + ?Sized> Bytes<'s, S> {
    fn of(source: &'s S, elf: &Elf, part: &str) -> Option<Self> {
        let section = elf.find_debug(part)?;
        Some(match elf.compressed(source, section, u64::MAX).ok()? {
            Some(packed) => {
                let reader = packed.reader(source, WINDOW_LOG).ok()?;
                Self::Packed(reader.take(MAX_DECOMPRESSED))
            }
            None => Self::Plain(elf.extent("DWARF", section).reader(source)),
        })
    }

    /// The next unit; `None` at the end.
    fn unit(&mut self) -> io::Result<Option<Unit>> {
        const SKELETON: u8 = 4;
        const LONG: u32 = u32::MAX;
        let mut head = [0; 4];
        if let Err(error) = self.read_exact(&mut head) {
            let is_end = error.kind() == io::ErrorKind::UnexpectedEof;
            return if is_end { Ok(None) } else { Err(error) };
        }
        let is_long = u32::from_le_bytes(head) == LONG;
        let mut left = u64::from(u32::from_le_bytes(head));
        if is_long {
            left = self.number::<8>(&mut left)?;
        }
        let version = self.number::<2>(&mut left)?;
        let unit = if version >= 5 {
            match self.number::<1>(&mut left)? as u8 {
                SKELETON => Unit::Skeleton,
                _ => Unit::Other,
            }
        } else {
            let described_at = match is_long {
                true => self.number::<8>(&mut left)?,
                false => self.number::<4>(&mut left)?,
            };
            let _address_size = self.number::<1>(&mut left)?;
            // First entries have codes of at most two bytes.
            let code = match self.number::<1>(&mut left)? {
                code if code & 0x80 == 0 => code,
                code => code & 0x7f | self.number::<1>(&mut left)? << 7,
            };
            Unit::Old { described_at, code }
        };
        self.skip(left)?;
        Ok(Some(unit))
    }

    /// Reads a number of `N` bytes and deducts them from `left`.
    fn number<const N: usize>(&mut self, left: &mut u64) -> io::Result<u64> {
        *left = left
            .checked_sub(N as u64)
            .ok_or(io::ErrorKind::InvalidData)?;
        let mut bytes = [0; 8];
        let (of_number, _) = bytes.split_at_mut(N);
        self.read_exact(of_number)?;
        Ok(u64::from_le_bytes(bytes))
    }

    fn skip(&mut self, count: u64) -> io::Result<()> {
        match self {
            Self::Plain(bytes) => bytes.skip(count),
            Self::Packed(bytes) => {
                io::copy(&mut bytes.take(count), &mut io::sink())?;
            }
        }
        Ok(())
    }
}

impl<S: Source + ?Sized> Read for Bytes<'_, S> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Plain(bytes) => bytes.read(buffer),
            Self::Packed(bytes) => bytes.read(buffer),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_the_dwo_name_in_the_right_entry() {
        // Code, tag, children flag; then attributes with their forms, and two zeros.
        let with = &[1, 0x11, 0, 0x10, 0x17, 0xb0, 0x42, 0x0e, 0, 0][..];
        let without = &[2, 0x11, 0, 0x10, 0x17, 0x03, 0x21, 0x7f, 0, 0][..];
        let check = |descriptions: &[&[u8]], code, expected| {
            let descriptions = descriptions.concat();
            assert_eq!(
                names_dwo(&descriptions, code),
                expected,
                "{descriptions:x?}"
            );
        };
        check(&[with, without], 1, true);
        check(&[with, without], 2, false);
        check(&[without, with], 1, true);
        check(&[without, with], 3, false);
        check(&[with, &[0], with], 2, false);
        for end in 0..with.len() - 3 {
            check(&[&with[..end.min(7)]], 1, false);
        }
        check(&[&[0xff; 64]], 1, false);
    }
}
