//! What an executable file says of itself.

use std::fs::File;
use std::os::unix::fs::MetadataExt;

use object::elf::{NT_GNU_BUILD_ID, PT_INTERP, SHT_SYMTAB};
use object::read::elf::{FileHeader, ProgramHeader, SectionHeader};
use object::{Endianness, FileKind, ReadCache, ReadRef};

use crate::toolchain;

/// Parts of a file that are longer are not looked at.
const LONGEST_PART: u64 = 8 << 20;

/// An ELF file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Executable {
    /// GNU's, in hexadecimal digits.
    pub build_id: Option<String>,
    /// It needs no program to load it.
    pub is_static: bool,
    /// It has no symbols of its own.
    pub is_stripped: bool,
    /// The compiler and its version: `GCC 12.2.0`.
    pub compiler: Option<String>,
}

/// Which file it is; another when it was changed or replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FileId {
    device: u64,
    inode: u64,
    length: u64,
    changed: (i64, i64),
}

impl Executable {
    /// The file that a process runs, in whatever namespace it lies.
    pub fn open(pid: u32) -> Option<(FileId, File)> {
        let file = File::open(format!("/proc/{pid}/exe")).ok()?;
        let metadata = file.metadata().ok()?;
        let id = FileId {
            device: metadata.dev(),
            inode: metadata.ino(),
            length: metadata.len(),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
        };
        Some((id, file))
    }

    pub fn read(file: File) -> Option<Self> {
        let cache = ReadCache::new(file);
        let data = Bounded(&cache);
        match FileKind::parse(data).ok()? {
            FileKind::Elf64 => read::<object::elf::FileHeader64<Endianness>>(data),
            FileKind::Elf32 => read::<object::elf::FileHeader32<Endianness>>(data),
            _ => None,
        }
    }
}

fn read<Elf: FileHeader<Endian = Endianness>>(data: Bounded<'_>) -> Option<Executable> {
    let header = Elf::parse(data).ok()?;
    let endian = header.endian().ok()?;
    let segments = header.program_headers(endian, data).ok()?;
    // Some have no table of sections.
    let sections = header.sections(endian, data).unwrap_or_default();
    let content = |name: &[u8]| {
        let (_, section) = sections.section_by_name(endian, name)?;
        section.data(endian, data).ok()
    };
    let go = content(b".go.buildinfo").and_then(toolchain::go);
    Some(Executable {
        build_id: segments
            .iter()
            .find_map(|segment| build_id::<Elf>(segment, endian, data)),
        is_static: segments
            .iter()
            .all(|segment| segment.p_type(endian) != PT_INTERP),
        is_stripped: sections
            .iter()
            .all(|section| section.sh_type(endian) != SHT_SYMTAB),
        compiler: go.or_else(|| content(b".comment").and_then(toolchain::compiler)),
    })
}

fn build_id<Elf: FileHeader<Endian = Endianness>>(
    segment: &Elf::ProgramHeader,
    endian: Endianness,
    data: Bounded<'_>,
) -> Option<String> {
    let mut notes = segment.notes(endian, data).ok()??;
    while let Ok(Some(note)) = notes.next() {
        if note.name() == b"GNU" && note.n_type(endian) == NT_GNU_BUILD_ID {
            return Some(
                note.desc()
                    .iter()
                    .map(|byte| format!("{byte:02x}"))
                    .collect(),
            );
        }
    }
    None
}

/// Reads no part that is longer than it should be: a file says itself how long its parts are.
#[derive(Clone, Copy)]
struct Bounded<'a>(&'a ReadCache<File>);

impl<'a> ReadRef<'a> for Bounded<'a> {
    fn len(self) -> Result<u64, ()> {
        self.0.len()
    }

    fn read_bytes_at(self, offset: u64, size: u64) -> Result<&'a [u8], ()> {
        match size <= LONGEST_PART {
            true => self.0.read_bytes_at(offset, size),
            false => Err(()),
        }
    }

    fn read_bytes_at_until(
        self,
        range: std::ops::Range<u64>,
        delimiter: u8,
    ) -> Result<&'a [u8], ()> {
        self.0.read_bytes_at_until(range, delimiter)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn knows_how_this_test_was_built() {
        let (_, file) = Executable::open(std::process::id()).expect("runs");
        let found = Executable::read(file).expect("is an ELF file");
        assert!(!found.is_static && !found.is_stripped, "{found:?}");
        let compiler = found.compiler.expect("rustc leaves its name");
        assert!(compiler.starts_with("Rust 1."), "{compiler}");
    }

    #[test]
    fn damaged_files_are_none_or_say_less() {
        let (_, mut file) = Executable::open(std::process::id()).expect("runs");
        let mut bytes = Vec::new();
        std::io::Read::read_to_end(&mut file, &mut bytes).expect("can be read");
        bytes.truncate(1 << 16);
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("damaged");
        for position in (0..4096).step_by(7).chain(0..64) {
            let mut damaged = bytes.clone();
            damaged[position] ^= 0xff;
            std::fs::write(&path, &damaged).expect("written");
            let found = Executable::read(File::open(&path).expect("is there"));
            let compiler = found.and_then(|found| found.compiler);
            assert_eq!(compiler, None, "the section is cut off: {position}");
        }
    }
}
