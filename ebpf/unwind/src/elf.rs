//! What an ELF file says of itself in its headers.

use crate::notes::Notes;
use crate::source::Part;
use crate::{Refused, Source};
use object::elf::*;
use object::{LittleEndian, pod};

/// The kernel runs no file with more.
const MAX_PROGRAM_HEADERS: u64 = 65_536;
/// 65,535 sections; executables have some forty, unless their linker kept one for each function.
const MAX_SECTION_HEADERS: u64 = 4 << 20;
/// The longest seen is a few hundred bytes.
const MAX_SECTION_NAMES: u64 = 4 << 20;
/// Notes are some hundred bytes.
const MAX_NOTES: u64 = 64 << 10;
/// Linkers make one; rewriters of binaries and runtimes that are mapped over huge pages up to four.
const MAX_EXECUTABLE_SEGMENTS: usize = 64;
/// Some half a million symbols.
const MAX_SYMBOLS: u64 = 16 << 20;
/// What a relative call reaches, and 4 MiB of page index.
const MAX_CODE: u64 = 2 << 30;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Machine {
    X86_64,
    Aarch64,
}

/// Code of a file, and the address for which it was linked.
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

    /// Behind the last address whose byte is in the file.
    pub fn end(&self) -> u64 {
        self.address + self.file_size
    }

    pub(crate) fn holds(&self, address: u64) -> bool {
        (self.address..self.end()).contains(&address)
    }
}

/// What is known of a file before its code is looked at.
#[derive(Debug)]
pub struct Executable {
    pub machine: Machine,
    /// The executable ones in the order of the file, at least one; they do not overlap there.
    pub segments: Vec<Segment>,
    pub build_id: Option<Box<[u8]>>,
    pub go_build_id: Option<Box<str>>,
    /// It can be mapped anywhere: a library or a position-independent program.
    pub position_independent: bool,
    /// It asks for a dynamic linker, as programs do that are not static.
    pub interpreter: bool,
    /// It has a dynamic section, as all have but plain static programs.
    pub dynamic: bool,
    /// It has a symbol table beside that of the dynamic linker.
    pub symbols: bool,
    pub entry: u64,
    pub(crate) sections: Vec<Section>,
    /// Address and place of `.eh_frame_hdr`, for files without section headers.
    pub(crate) eh_frame_hdr: Option<(u64, Part)>,
    /// Every loaded segment, also those without code.
    pub(crate) loaded: Vec<Segment>,
}

/// A function by its symbol; a size of 0 is not known.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Function {
    pub start: u64,
    pub size: u64,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Section {
    pub part: Part,
    pub address: u64,
    pub flags: u64,
}

/// The sections that anything here asks for.
const SECTIONS: &[&str] = &[
    ".data.rel.ro.gopclntab",
    ".debug_frame",
    ".dynsym",
    ".eh_frame",
    ".go.buildinfo",
    ".gopclntab",
    ".got",
    ".note.gnu.build-id",
    ".note.go.buildid",
    ".plt",
    ".plt.bnd",
    ".plt.got",
    ".plt.sec",
    ".relr.dyn",
    ".symtab",
    ".text",
];

type Header = FileHeader64<LittleEndian>;
type ProgramHeader = ProgramHeader64<LittleEndian>;
type SectionHeader = SectionHeader64<LittleEndian>;
type Symbol = Sym64<LittleEndian>;
const LE: LittleEndian = LittleEndian;

impl Executable {
    pub fn read(source: &(impl Source + ?Sized)) -> Result<Self, Refused> {
        let length = source.len().map_err(|error| Refused::Unreadable {
            what: "the file",
            error,
        })?;
        if !begins_with_magic(source, length)? {
            return Err(Refused::NotElf);
        }
        if length < size_of::<Header>() as u64 {
            return Err(Refused::Unsupported {
                why: "shorter than an ELF header",
            });
        }
        let bytes = Part {
            what: "the ELF header",
            offset: 0,
            size: size_of::<Header>() as u64,
        }
        .read(source, size_of::<Header>() as u64)?;
        let header = file_header(&bytes)?;
        let machine = machine(header)?;
        let bytes = Part {
            what: "the program headers",
            offset: header.e_phoff.get(LE),
            size: u64::from(header.e_phnum.get(LE)) * size_of::<ProgramHeader>() as u64,
        }
        .read(source, MAX_PROGRAM_HEADERS)?;
        let programs = all::<ProgramHeader>(&bytes);

        let segments = code(programs, length)?;
        let (sections, symbols) = sections(source, header).unwrap_or_default();
        let notes = notes(source, programs, &sections);
        let first = |kind| programs.iter().find(|p| p.p_type.get(LE) == kind);
        Ok(Self {
            machine,
            segments,
            build_id: notes.build_id,
            go_build_id: notes.go_build_id,
            position_independent: header.e_type.get(LE) == ET_DYN,
            interpreter: first(PT_INTERP).is_some(),
            dynamic: first(PT_DYNAMIC).is_some(),
            symbols,
            entry: header.e_entry.get(LE),
            sections,
            eh_frame_hdr: first(PT_GNU_EH_FRAME)
                .map(|p| (p.p_vaddr.get(LE), part(p, ".eh_frame_hdr"))),
            loaded: programs
                .iter()
                .filter(|p| p.p_type.get(LE) == PT_LOAD)
                .filter_map(|p| segment(p, length))
                .collect(),
        })
    }

    /// Runs to its end without a dynamic linker.
    pub fn is_static(&self) -> bool {
        !self.interpreter && (!self.dynamic || self.entry != 0)
    }

    pub fn is_go(&self) -> bool {
        self.go_build_id.is_some()
            || self.go_functions().is_some()
            || self.section(".go.buildinfo").is_some()
    }

    /// Where code is in the file, with what may stand between its segments.
    pub(crate) fn code(&self) -> std::ops::Range<u64> {
        let start = self.segments.first().map_or(0, |first| first.file_offset);
        let end = self.segments.last().map_or(0, Segment::file_end);
        start..end
    }

    pub(crate) fn section(&self, name: &str) -> Option<&Section> {
        self.sections
            .iter()
            .find(|section| section.part.what == name)
    }

    /// Go's table of functions; Go's own linker called it otherwise in position-independent programs.
    pub(crate) fn go_functions(&self) -> Option<&Section> {
        let old = || self.section(".data.rel.ro.gopclntab");
        self.section(".gopclntab").or_else(old)
    }

    /// Whether nothing but the kernel jumps to the entry, as in programs.
    pub(crate) fn is_entered_by_kernel(&self) -> bool {
        // Old linkers give libraries an entry that is some function.
        self.interpreter || !self.position_independent
    }

    /// The functions that have symbols.
    pub(crate) fn functions(&self, source: &(impl Source + ?Sized)) -> Vec<Function> {
        let mut functions = Vec::new();
        for name in [".symtab", ".dynsym"] {
            let Some(section) = self.section(name) else {
                continue;
            };
            let Ok(bytes) = section.part.read(source, MAX_SYMBOLS) else {
                continue;
            };
            functions.extend(
                all::<Symbol>(&bytes)
                    .iter()
                    .filter(|symbol| {
                        matches!(symbol.st_info & 0xf, STT_FUNC | STT_GNU_IFUNC)
                            && symbol.st_shndx.get(LE) != SHN_UNDEF
                    })
                    .map(|symbol| Function {
                        start: symbol.st_value.get(LE),
                        size: symbol.st_size.get(LE),
                    }),
            );
        }
        functions
    }

    /// The executable segment with this address.
    pub(crate) fn segment_at(&self, address: u64) -> Option<&Segment> {
        self.segments.iter().find(|segment| segment.holds(address))
    }
}

/// Whether the file says that it is an ELF file, of whatever kind.
fn begins_with_magic(source: &(impl Source + ?Sized), length: u64) -> Result<bool, Refused> {
    let magic = Part {
        what: "the ELF header",
        offset: 0,
        size: ELFMAG.len() as u64,
    };
    Ok(length >= magic.size && magic.read(source, magic.size)? == ELFMAG)
}

fn file_header(bytes: &[u8]) -> Result<&Header, Refused> {
    let unsupported = |why| Err(Refused::Unsupported { why });
    let Ok((header, _)) = pod::from_bytes::<Header>(bytes) else {
        return unsupported("shorter than an ELF header");
    };
    if header.e_ident.class != ELFCLASS64 || header.e_ident.data != ELFDATA2LSB {
        return unsupported("not 64-bit little-endian");
    }
    if !matches!(header.e_type.get(LE), ET_EXEC | ET_DYN) {
        return unsupported("neither program nor library");
    }
    if usize::from(header.e_phentsize.get(LE)) != size_of::<ProgramHeader>() {
        return unsupported("program headers of unknown size");
    }
    Ok(header)
}

fn machine(header: &Header) -> Result<Machine, Refused> {
    match header.e_machine.get(LE) {
        EM_X86_64 => Ok(Machine::X86_64),
        EM_AARCH64 => Ok(Machine::Aarch64),
        _ => Err(Refused::Unsupported {
            why: "neither x86-64 nor aarch64",
        }),
    }
}

/// As many as the bytes hold.
fn all<T: pod::Pod>(bytes: &[u8]) -> &[T] {
    pod::slice_from_bytes(bytes, bytes.len() / size_of::<T>()).map_or(&[], |(all, _)| all)
}

fn part(program: &ProgramHeader, what: &'static str) -> Part {
    Part {
        what,
        offset: program.p_offset.get(LE),
        size: program.p_filesz.get(LE),
    }
}

/// The part of a segment that is in the file, if any.
fn segment(program: &ProgramHeader, length: u64) -> Option<Segment> {
    let file_offset = program.p_offset.get(LE);
    let file_size = program
        .p_filesz
        .get(LE)
        .min(length.checked_sub(file_offset)?);
    let address = program.p_vaddr.get(LE);
    address.checked_add(file_size)?;
    (file_size > 0).then_some(Segment {
        file_offset,
        file_size,
        memory_size: program.p_memsz.get(LE),
        address,
    })
}

fn code(programs: &[ProgramHeader], length: u64) -> Result<Vec<Segment>, Refused> {
    let mut segments: Vec<Segment> = programs
        .iter()
        .filter(|p| p.p_type.get(LE) == PT_LOAD && p.p_flags.get(LE) & PF_X != 0)
        .filter_map(|p| segment(p, length))
        .collect();
    segments.sort_by_key(|segment| segment.file_offset);
    let (Some(first), Some(last)) = (segments.first(), segments.last()) else {
        return Err(Refused::Unsupported {
            why: "no code in it",
        });
    };
    let size = last.file_end() - first.file_offset;
    let overlap = segments
        .windows(2)
        .any(|pair| matches!(pair, [a, b] if a.file_end() > b.file_offset));
    if overlap {
        return Err(Refused::Broken {
            what: "the order of the executable segments",
        });
    }
    if size > MAX_CODE {
        return Err(Refused::TooLarge {
            what: "the code in bytes",
            size,
            limit: MAX_CODE,
        });
    }
    if segments.len() > MAX_EXECUTABLE_SEGMENTS {
        return Err(Refused::TooLarge {
            what: "the number of executable segments",
            size: segments.len() as u64,
            limit: MAX_EXECUTABLE_SEGMENTS as u64,
        });
    }
    Ok(segments)
}

/// The known sections, and whether there is a symbol table. The kernel runs files whose section
/// headers are missing or broken, so they are no reason to refuse one.
fn sections(
    source: &(impl Source + ?Sized),
    header: &Header,
) -> Result<(Vec<Section>, bool), Refused> {
    let what = "the section headers";
    let bytes = Part {
        what,
        offset: header.e_shoff.get(LE),
        size: u64::from(header.e_shnum.get(LE)) * size_of::<SectionHeader>() as u64,
    }
    .read(source, MAX_SECTION_HEADERS)?;
    let headers = all::<SectionHeader>(&bytes);
    let names = headers
        .get(usize::from(header.e_shstrndx.get(LE)))
        .ok_or(Refused::Broken { what })?;
    let names = Part {
        what: "the section names",
        offset: names.sh_offset.get(LE),
        size: names.sh_size.get(LE),
    }
    .read(source, MAX_SECTION_NAMES)?;
    let sections = headers
        .iter()
        .filter(|header| header.sh_type.get(LE) != SHT_NOBITS)
        .filter_map(|header| {
            let name = names.get(header.sh_name.get(LE) as usize..)?;
            let name = name.split(|&byte| byte == 0).next()?;
            let what = SECTIONS.iter().find(|known| known.as_bytes() == name)?;
            Some(Section {
                part: Part {
                    what,
                    offset: header.sh_offset.get(LE),
                    size: header.sh_size.get(LE),
                },
                address: header.sh_addr.get(LE),
                flags: header.sh_flags.get(LE),
            })
        })
        .take(4 * SECTIONS.len())
        .collect();
    let symbols = headers
        .iter()
        .any(|header| header.sh_type.get(LE) == SHT_SYMTAB);
    Ok((sections, symbols))
}

fn notes(
    source: &(impl Source + ?Sized),
    programs: &[ProgramHeader],
    sections: &[Section],
) -> Notes {
    let segments = programs
        .iter()
        .filter(|p| p.p_type.get(LE) == PT_NOTE)
        .take(16)
        .map(|p| (part(p, "the notes"), p.p_align.get(LE)));
    let sections = sections
        .iter()
        .filter(|section| section.part.what.starts_with(".note"))
        .map(|section| (section.part, 4));
    let mut notes = Notes::default();
    for (part, alignment) in segments.chain(sections) {
        if let Ok(bytes) = part.read(source, MAX_NOTES) {
            notes.gather(&bytes, alignment as usize);
        }
    }
    notes
}
