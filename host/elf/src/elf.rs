//! The headers of an ELF file.

use object::elf::{
    ELFMAG, EM_AARCH64, EM_X86_64, FileHeader64, PN_XNUM, PT_LOAD, PT_NOTE, ProgramHeader64,
    SHN_XINDEX, SHT_NOBITS, SHT_NOTE, SHT_STRTAB, SectionHeader64,
};
use object::pod::{self, Pod};
use object::read::elf::{FileHeader, ProgramHeader as _, SectionHeader as _};
use object::{Endian, LittleEndian};

use crate::error::unsupported;
use crate::{BuildIds, ElfError, Extent, Source};

/// The kernel's limit for executables.
const MAX_PROGRAM_HEADERS: u64 = 65_536;
/// Executables have about forty sections, unless the linker kept one per function.
const MAX_SECTION_HEADERS: u64 = 4 << 20;
/// The longest seen is a few hundred bytes.
const MAX_NAMES: u64 = 4 << 20;
/// Longer names count as missing, which bounds the cost of comparing all of them.
const MAX_NAME: usize = 4 << 10;
/// Notes are usually a few hundred bytes.
const MAX_NOTES: u64 = 64 << 10;
/// Number of note segments, and of note sections, to look at.
const MAX_NOTE_SEGMENTS: usize = 16;
const MAX_NOTE_SECTIONS: usize = 64;

pub type Header = FileHeader64<LittleEndian>;
pub type ProgramHeader = ProgramHeader64<LittleEndian>;
pub type SectionHeader = SectionHeader64<LittleEndian>;
pub type Symbol = object::elf::Sym64<LittleEndian>;
pub const LE: LittleEndian = LittleEndian;

/// The supported architectures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Machine {
    X86_64,
    Aarch64,
}

/// A loaded part of the file and its link address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    pub file_offset: u64,
    pub file_size: u64,
    pub memory_size: u64,
    pub address: u64,
}

impl Segment {
    pub fn file_end(&self) -> u64 {
        self.file_offset + self.file_size
    }

    /// The end of the addresses backed by the file.
    pub fn end(&self) -> u64 {
        self.address + self.file_size
    }

    pub fn holds(&self, address: u64) -> bool {
        (self.address..self.end()).contains(&address)
    }
}

/// The headers of a file with the class and byte order of its type parameter: by default 64-bit and little-endian.
#[derive(Debug)]
pub struct Elf<H: FileHeader = Header> {
    /// Size of the file.
    pub length: u64,
    pub endian: H::Endian,
    pub header: H,
    pub programs: Vec<H::ProgramHeader>,
    /// Empty if the file has none.
    pub sections: Vec<H::SectionHeader>,
    /// Index and content of the section name table.
    pub names_section: usize,
    names: Vec<u8>,
}

impl Elf {
    /// Reads a file of a supported machine. Damaged sections are an error, missing ones are not.
    pub fn read(source: &(impl Source + ?Sized)) -> Result<Self, ElfError> {
        let mut elf = Self::without_sections(source)?;
        elf.machine()?;
        elf.read_sections(source)?;
        Ok(elf)
    }
}

impl<H: FileHeader> Elf<H> {
    /// Reads a file of any machine. The kernel executes files whose section headers are missing or damaged: these have
    /// no sections here.
    pub fn read_lenient(source: &(impl Source + ?Sized)) -> Result<Self, ElfError> {
        let mut elf = Self::without_sections(source)?;
        // On failure the sections stay empty.
        let _ = elf.read_sections(source);
        Ok(elf)
    }

    fn without_sections(source: &(impl Source + ?Sized)) -> Result<Self, ElfError> {
        let length = source.length().map_err(|error| ElfError::Unreadable {
            what: "the file",
            offset: 0,
            error,
        })?;
        let header: H = header(source, length)?;
        let Ok(endian) = header.endian() else {
            return Err(unsupported("not little-endian"));
        };
        let count = header.e_phnum(endian);
        let size = usize::from(header.e_phentsize(endian));
        if count == PN_XNUM || count > 0 && size != size_of::<H::ProgramHeader>() {
            return Err(unsupported("unexpected program header size"));
        }
        let programs = table(
            source,
            "the program headers",
            header.e_phoff(endian).into(),
            count.into(),
            MAX_PROGRAM_HEADERS,
        )?;
        Ok(Self {
            length,
            endian,
            header,
            programs,
            sections: Vec::new(),
            names_section: 0,
            names: Vec::new(),
        })
    }

    /// Changes nothing on failure.
    fn read_sections(&mut self, source: &(impl Source + ?Sized)) -> Result<(), ElfError> {
        let (header, endian) = (&self.header, self.endian);
        let at: u64 = header.e_shoff(endian).into();
        if at == 0 {
            return Ok(());
        }
        if usize::from(header.e_shentsize(endian)) != size_of::<H::SectionHeader>() {
            return Err(unsupported("unexpected section header size"));
        }
        let read = |count| -> Result<Vec<H::SectionHeader>, ElfError> {
            table(
                source,
                "the section headers",
                at,
                count,
                MAX_SECTION_HEADERS,
            )
        };
        // Counts that do not fit into the header are in the first section.
        let mut count = u64::from(header.e_shnum(endian));
        let mut names_section = u32::from(header.e_shstrndx(endian));
        if let [first] = &read(1)?[..] {
            if count == 0 {
                count = first.sh_size(endian).into();
            }
            if names_section == u32::from(SHN_XINDEX) {
                names_section = first.sh_link(endian);
            }
        }
        let sections = read(count)?;
        let names_section = names_section as usize;
        let names = match sections.get(names_section) {
            Some(section) if section.sh_type(endian) == SHT_STRTAB => {
                extent(section, endian, "the section name table").read(source, MAX_NAMES)?
            }
            _ => return Err(unsupported("no section names")),
        };
        (self.sections, self.names_section, self.names) = (sections, names_section, names);
        Ok(())
    }

    pub fn machine(&self) -> Result<Machine, ElfError> {
        match self.header.e_machine(self.endian) {
            EM_X86_64 => Ok(Machine::X86_64),
            EM_AARCH64 => Ok(Machine::Aarch64),
            _ => Err(unsupported("machine is neither x86-64 nor aarch64")),
        }
    }

    pub fn has_segment(&self, kind: u32) -> bool {
        let mut programs = self.programs.iter();
        programs.any(|program| program.p_type(self.endian) == kind)
    }

    /// The segments loaded with at least these permissions that have bytes in the file.
    pub fn loaded(&self, flags: u32) -> impl Iterator<Item = Segment> {
        let endian = self.endian;
        let loaded = self.programs.iter().filter(move |program| {
            program.p_type(endian) == PT_LOAD && program.p_flags(endian) & flags == flags
        });
        loaded.filter_map(move |program| {
            let (file_offset, file_size) = program.file_range(endian);
            let file_size = file_size.min(self.length.checked_sub(file_offset)?);
            let address: u64 = program.p_vaddr(endian).into();
            address.checked_add(file_size)?;
            (file_size > 0).then_some(Segment {
                file_offset,
                file_size,
                memory_size: program.p_memsz(endian).into(),
                address,
            })
        })
    }

    /// Empty if missing.
    pub fn name(&self, section: &H::SectionHeader) -> &[u8] {
        let start = section.sh_name(self.endian) as usize;
        let rest = self.names.get(start..).unwrap_or_default();
        let mut bytes = rest.iter().take(MAX_NAME);
        let end = bytes.position(|&byte| byte == 0);
        rest.get(..end.unwrap_or(0)).unwrap_or_default()
    }

    /// The section with this name that has bytes in the file.
    pub fn find(&self, name: &[u8]) -> Option<&H::SectionHeader> {
        let mut sections = self.sections.iter();
        sections.find(|it| has_bytes(*it, self.endian) && self.name(it) == name)
    }

    /// The DWARF section `.debug_PART`, or `.zdebug_PART` if compressed by older GNU tools.
    pub fn find_debug(&self, part: &str) -> Option<&H::SectionHeader> {
        let named = |beginning: &str| self.find(format!("{beginning}{part}").as_bytes());
        named(".debug_").or_else(|| named(".zdebug_"))
    }

    /// The file range of a section.
    pub fn extent(&self, what: &'static str, section: &H::SectionHeader) -> Extent {
        extent(section, self.endian, what)
    }

    /// The content of a section, up to a limit.
    pub fn content(
        &self,
        source: &(impl Source + ?Sized),
        what: &'static str,
        section: &H::SectionHeader,
        limit: u64,
    ) -> Result<Vec<u8>, ElfError> {
        self.extent(what, section).read(source, limit)
    }

    /// Segments take precedence over sections: what is loaded was not changed after linking. But Go's linker leaves
    /// GNU's note out of the segment.
    pub fn build_ids(&self, source: &(impl Source + ?Sized)) -> BuildIds {
        let endian = self.endian;
        let what = "the notes";
        let programs = self.programs.iter();
        let segments = programs.filter(|program| program.p_type(endian) == PT_NOTE);
        let segments = segments.take(MAX_NOTE_SEGMENTS).map(|program| {
            let (offset, size) = program.file_range(endian);
            (Extent { what, offset, size }, program.p_align(endian))
        });
        let sections = self.sections.iter();
        let sections = sections.filter(|section| section.sh_type(endian) == SHT_NOTE);
        let sections = sections.take(MAX_NOTE_SECTIONS).map(|section| {
            let extent = extent(section, endian, what);
            (extent, section.sh_addralign(endian))
        });
        let mut ids = BuildIds::default();
        for (extent, alignment) in segments.chain(sections) {
            if ids.gnu.is_some() && ids.go.is_some() {
                break;
            }
            if let Ok(notes) = extent.read(source, MAX_NOTES) {
                ids.gather(&notes, alignment.into(), endian);
            }
        }
        ids
    }
}

/// Whether the section has bytes in the file.
pub fn has_data(section: &SectionHeader) -> bool {
    has_bytes(section, LE)
}

/// As many entries as fit into the bytes.
pub fn entries<T: Pod>(bytes: &[u8]) -> &[T] {
    pod::slice_from_bytes(bytes, bytes.len() / size_of::<T>()).map_or(&[], |(entries, _)| entries)
}

fn has_bytes<E: Endian>(
    section: &impl object::read::elf::SectionHeader<Endian = E>,
    endian: E,
) -> bool {
    section.sh_type(endian) != SHT_NOBITS && section.sh_size(endian).into() > 0
}

fn extent<E: Endian>(
    section: &impl object::read::elf::SectionHeader<Endian = E>,
    endian: E,
    what: &'static str,
) -> Extent {
    let (offset, size) = match has_bytes(section, endian) {
        true => (
            section.sh_offset(endian).into(),
            section.sh_size(endian).into(),
        ),
        false => (0, 0),
    };
    Extent { what, offset, size }
}

fn header<H: FileHeader>(source: &(impl Source + ?Sized), length: u64) -> Result<H, ElfError> {
    let extent = Extent {
        what: "the ELF header",
        offset: 0,
        size: length.min(size_of::<H>() as u64),
    };
    let bytes = extent.read(source, extent.size)?;
    if !bytes.starts_with(&ELFMAG) {
        return Err(ElfError::NotElf);
    }
    let Ok((&header, _)) = pod::from_bytes::<H>(&bytes) else {
        return Err(unsupported("shorter than an ELF header"));
    };
    match header.is_type_64() {
        true if !header.is_class_64() => return Err(unsupported("class is not 64-bit")),
        false if !header.is_class_32() => return Err(unsupported("class is not 32-bit")),
        _ => {}
    }
    if !header.is_little_endian() && !header.is_big_endian() {
        return Err(unsupported("unknown byte order"));
    }
    Ok(header)
}

fn table<T: Pod>(
    source: &(impl Source + ?Sized),
    what: &'static str,
    offset: u64,
    count: u64,
    limit: u64,
) -> Result<Vec<T>, ElfError> {
    // The offset of an empty table is meaningless.
    if count == 0 {
        return Ok(Vec::new());
    }
    let size = count.saturating_mul(size_of::<T>() as u64);
    let bytes = Extent { what, offset, size }.read(source, limit)?;
    Ok(entries(&bytes).to_vec())
}
