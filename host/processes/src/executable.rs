//! What an executable file says of itself.

use std::fs::File;
use std::os::unix::fs::MetadataExt;

use object::elf::{NT_GNU_BUILD_ID, PT_INTERP, SHT_SYMTAB};
use object::read::elf::{FileHeader, NoteIterator, ProgramHeader, SectionHeader};
use object::{Endianness, FileKind, ReadCache, ReadRef};

use crate::toolchain;

/// Of the notes by the name `Go`.
const NT_GO_BUILD_ID: u32 = 4;

/// Parts of a file that are longer are not looked at.
const MAX_PART: u64 = 8 << 20;

/// An ELF file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Executable {
    /// GNU's, in hexadecimal digits.
    pub build_id: Option<String>,
    /// That of Go's linker, which is a text.
    pub go_build_id: Option<String>,
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
    let mut ids = Ids::default();
    for segment in segments {
        ids.take::<Elf>(segment.notes(endian, data), endian);
    }
    // Go's linker leaves GNU's out of the segment.
    for section in sections.iter() {
        ids.take::<Elf>(section.notes(endian, data), endian);
    }
    Some(Executable {
        build_id: ids.gnu,
        go_build_id: ids.go,
        is_static: segments
            .iter()
            .all(|segment| segment.p_type(endian) != PT_INTERP),
        is_stripped: sections
            .iter()
            .all(|section| section.sh_type(endian) != SHT_SYMTAB),
        compiler: go.or_else(|| content(b".comment").and_then(toolchain::compiler)),
    })
}

/// The first of each kind.
#[derive(Default)]
struct Ids {
    gnu: Option<String>,
    go: Option<String>,
}

impl Ids {
    fn take<Elf: FileHeader<Endian = Endianness>>(
        &mut self,
        notes: object::Result<Option<NoteIterator<'_, Elf>>>,
        endian: Endianness,
    ) {
        let Ok(Some(mut notes)) = notes else {
            return;
        };
        while let Ok(Some(note)) = notes.next() {
            let id = note.desc();
            match (note.name(), note.n_type(endian)) {
                (b"GNU", NT_GNU_BUILD_ID) if self.gnu.is_none() => {
                    self.gnu = Some(id.iter().map(|byte| format!("{byte:02x}")).collect());
                }
                (b"Go", NT_GO_BUILD_ID) if self.go.is_none() => {
                    self.go = std::str::from_utf8(id).ok().map(str::to_owned);
                }
                _ => {}
            }
        }
    }
}

/// Reads no part that is longer than it should be: a file says itself how long its parts are.
#[derive(Clone, Copy)]
struct Bounded<'a>(&'a ReadCache<File>);

impl<'a> ReadRef<'a> for Bounded<'a> {
    fn len(self) -> Result<u64, ()> {
        self.0.len()
    }

    fn read_bytes_at(self, offset: u64, size: u64) -> Result<&'a [u8], ()> {
        match size <= MAX_PART {
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

    /// A file with a section for each note and no segments: Go's linker has GNU's id in none.
    fn with_notes(notes: &[(&[u8; 4], u32, &[u8])]) -> Vec<u8> {
        const HEADER: usize = 64;
        let mut content = Vec::new();
        // None, and that with the names of sections, which have none here.
        let mut sections = vec![[0; 64]; 2];
        sections[1][4] = 3;
        for (name, kind, id) in notes {
            let offset = HEADER + content.len();
            let length = name.iter().position(|&byte| byte == 0).unwrap_or(3) as u32 + 1;
            for number in [length, id.len() as u32, *kind] {
                content.extend_from_slice(&number.to_le_bytes());
            }
            content.extend_from_slice(*name);
            content.extend_from_slice(id);
            content.resize(content.len().next_multiple_of(4), 0);
            let mut section = [0; 64];
            section[4] = 7; // It is a note.
            section[24..32].copy_from_slice(&(offset as u64).to_le_bytes());
            let size = (HEADER + content.len() - offset) as u64;
            section[32..40].copy_from_slice(&size.to_le_bytes());
            section[48] = 4; // So it is aligned.
            sections.push(section);
        }
        let mut file = vec![0; HEADER];
        file[..7].copy_from_slice(b"\x7fELF\x02\x01\x01");
        file[16] = 2; // A program
        file[18] = 62; // for x86-64.
        file[20] = 1;
        file[40..48].copy_from_slice(&((HEADER + content.len()) as u64).to_le_bytes());
        file[52] = 64;
        file[58] = 64;
        file[60] = sections.len() as u8;
        file[62] = 1;
        file.extend(content);
        file.extend(sections.concat());
        file
    }

    #[test]
    fn build_ids_stand_in_sections_too() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("go");
        let notes: [(&[u8; 4], u32, &[u8]); 3] = [
            (b"Go\0\0", 4, b"a/b/c"),
            (b"GNU\0", 3, b"\x01\xfe"),
            (b"GNU\0", 3, b"\x02"),
        ];
        std::fs::write(&path, with_notes(&notes)).expect("written");
        let found = Executable::read(File::open(&path).expect("is there")).expect("is an ELF file");
        assert_eq!(found.go_build_id.as_deref(), Some("a/b/c"));
        assert_eq!(found.build_id.as_deref(), Some("01fe"));
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
