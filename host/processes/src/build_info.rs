//! How an executable was built, from its own metadata.

use std::fs::File;
use std::os::unix::fs::MetadataExt;

use object::Endianness;
use object::elf::{FileHeader32, FileHeader64, PT_INTERP, SHT_SYMTAB};
use object::read::elf::{FileHeader, SectionHeader};
use profcol_elf::{Elf, hex};

use crate::toolchain;

/// Size limit of a section.
const MAX_SECTION: u64 = 8 << 20;

/// How an executable was built.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BuildInfo {
    /// GNU's build id in hex.
    pub build_id: Option<String>,
    /// The id of Go's linker, a string.
    pub go_build_id: Option<String>,
    /// Needs no dynamic linker.
    pub is_static: bool,
    /// Has no symbol table of its own.
    pub is_stripped: bool,
    /// The compiler and its version: `GCC 12.2.0`.
    pub compiler: Option<String>,
}

/// Identifies a file; changes when the file is modified or replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FileVersion {
    device: u64,
    inode: u64,
    length: u64,
    changed: (i64, i64),
}

/// Opens the executable of a process, in any mount namespace.
pub fn open_executable(pid: u32) -> Option<(FileVersion, File)> {
    let file = File::open(format!("/proc/{pid}/exe")).ok()?;
    let metadata = file.metadata().ok()?;
    let id = FileVersion {
        device: metadata.dev(),
        inode: metadata.ino(),
        length: metadata.len(),
        changed: (metadata.ctime(), metadata.ctime_nsec()),
    };
    Some((id, file))
}

impl BuildInfo {
    /// Supports any class and byte order: 32-bit programs run on 64-bit hosts, too.
    pub fn read(file: &File) -> Option<Self> {
        describe::<FileHeader64<Endianness>>(file).or_else(|| describe::<FileHeader32<_>>(file))
    }
}

fn describe<H: FileHeader<Endian = Endianness>>(file: &File) -> Option<BuildInfo> {
    let elf = Elf::<H>::read_lenient(file).ok()?;
    let content = |name: &[u8]| {
        let section = elf.find(name)?;
        elf.content(file, "a section", section, MAX_SECTION).ok()
    };
    let go = content(b".go.buildinfo").and_then(|record| toolchain::go(&record));
    let ids = elf.build_ids(file);
    let mut sections = elf.sections.iter();
    Some(BuildInfo {
        build_id: ids.gnu.as_deref().map(hex),
        go_build_id: ids.go.map(String::from),
        is_static: !elf.has_segment(PT_INTERP),
        is_stripped: sections.all(|section| section.sh_type(elf.endian) != SHT_SYMTAB),
        compiler: go.or_else(|| toolchain::compiler(&content(b".comment")?)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_the_build_info_of_this_test() {
        let (_, file) = open_executable(std::process::id()).expect("runs");
        let info = BuildInfo::read(&file).expect("ELF file");
        assert!(!info.is_static && !info.is_stripped, "{info:?}");
        let compiler = info.compiler.expect("rustc adds its name");
        assert!(compiler.starts_with("Rust 1."), "{compiler}");
    }

    /// A file with a section per note and no segments: Go's linker puts GNU's id only into a section.
    fn with_notes(notes: &[(&[u8; 4], u32, &[u8])]) -> Vec<u8> {
        const HEADER: usize = 64;
        let mut content = Vec::new();
        // The null section, and the section name table, which is empty here.
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
            section[4] = 7; // SHT_NOTE
            section[24..32].copy_from_slice(&(offset as u64).to_le_bytes());
            let size = (HEADER + content.len() - offset) as u64;
            section[32..40].copy_from_slice(&size.to_le_bytes());
            section[48] = 4; // alignment
            sections.push(section);
        }
        let mut file = vec![0; HEADER];
        file[..7].copy_from_slice(b"\x7fELF\x02\x01\x01");
        file[16] = 2; // ET_EXEC
        file[18] = 62; // EM_X86_64
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
    fn finds_build_ids_in_sections() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let path = directory.path().join("go");
        let notes: [(&[u8; 4], u32, &[u8]); 3] = [
            (b"Go\0\0", 4, b"a/b/c"),
            (b"GNU\0", 3, b"\x01\xfe"),
            (b"GNU\0", 3, b"\x02"),
        ];
        std::fs::write(&path, with_notes(&notes)).expect("written");
        let info = BuildInfo::read(&File::open(&path).expect("present")).expect("ELF file");
        assert_eq!(info.go_build_id.as_deref(), Some("a/b/c"));
        assert_eq!(info.build_id.as_deref(), Some("01fe"));
    }

    #[test]
    fn damaged_files_yield_partial_info() {
        let (_, mut file) = open_executable(std::process::id()).expect("runs");
        let mut bytes = Vec::new();
        std::io::Read::read_to_end(&mut file, &mut bytes).expect("readable");
        bytes.truncate(1 << 16);
        let directory = tempfile::tempdir().expect("a temporary directory");
        let path = directory.path().join("damaged");
        for position in (0..4096).step_by(7).chain(0..64) {
            let mut damaged = bytes.clone();
            damaged[position] ^= 0xff;
            std::fs::write(&path, &damaged).expect("written");
            let info = BuildInfo::read(&File::open(&path).expect("present"));
            let compiler = info.and_then(|info| info.compiler);
            assert_eq!(compiler, None, "truncated section: {position}");
        }
    }
}
