//! What the headers of a program or library say of its code.

use crate::Refused;
use object::elf::*;
use profcol_elf::{Elf, Extent, LE, Machine, Pclntab, Segment, Source, Symbol, entries};

/// Linkers make one; rewriters of binaries and runtimes that are mapped over huge pages up to four.
const MAX_EXECUTABLE_SEGMENTS: usize = 64;
/// Some half a million symbols.
const MAX_SYMBOLS: u64 = 16 << 20;
/// What a relative call reaches, and 4 MiB of page index.
const MAX_CODE: u64 = 2 << 30;

/// Where the code of a file is, and what in the file may say how it unwinds.
#[derive(Debug)]
pub struct ElfCode {
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
    pub(crate) eh_frame_hdr: Option<(u64, Extent)>,
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
    pub extent: Extent,
    pub address: u64,
    pub flags: u64,
}

const SECTIONS: &[&str] = &[
    ".data.rel.ro.gopclntab",
    ".debug_frame",
    ".dynsym",
    ".eh_frame",
    ".go.buildinfo",
    ".gopclntab",
    ".got",
    ".plt",
    ".plt.bnd",
    ".plt.got",
    ".plt.sec",
    ".relr.dyn",
    ".symtab",
    ".text",
];

impl ElfCode {
    pub fn read(source: &(impl Source + ?Sized)) -> Result<Self, Refused> {
        let elf: Elf = Elf::read_lenient(source)?;
        let machine = elf.machine()?;
        if !matches!(elf.header.e_type.get(LE), ET_EXEC | ET_DYN) {
            return Err(Refused::Unsupported {
                why: "neither program nor library",
            });
        }
        let ids = elf.build_ids(source);
        let mut sections = elf.sections.iter();
        let mut programs = elf.programs.iter();
        let eh_frame_hdr = programs.find(|it| it.p_type.get(LE) == PT_GNU_EH_FRAME);
        Ok(Self {
            machine,
            segments: code(&elf)?,
            build_id: ids.gnu,
            go_build_id: ids.go,
            position_independent: elf.header.e_type.get(LE) == ET_DYN,
            interpreter: elf.has_segment(PT_INTERP),
            dynamic: elf.has_segment(PT_DYNAMIC),
            symbols: sections.any(|section| section.sh_type.get(LE) == SHT_SYMTAB),
            entry: elf.header.e_entry.get(LE),
            sections: self::sections(&elf),
            eh_frame_hdr: eh_frame_hdr.map(|program| {
                let extent = Extent {
                    what: ".eh_frame_hdr",
                    offset: program.p_offset.get(LE),
                    size: program.p_filesz.get(LE),
                };
                (program.p_vaddr.get(LE), extent)
            }),
            loaded: elf.loaded(0).collect(),
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

    /// Whether anything in the file says how its code unwinds; what says nothing is followed by its instructions where these
    /// can be read, else by frame pointers.
    pub fn is_described(&self) -> bool {
        let sections = [".eh_frame", ".debug_frame"];
        sections.iter().any(|name| self.section(name).is_some())
            || self.eh_frame_hdr.is_some()
            || self.go_functions().is_some()
    }

    /// Where code is in the file, with what may stand between its segments.
    pub(crate) fn file_range(&self) -> std::ops::Range<u64> {
        let start = self.segments.first().map_or(0, |first| first.file_offset);
        let end = self.segments.last().map_or(0, Segment::file_end);
        start..end
    }

    pub(crate) fn section(&self, name: &str) -> Option<&Section> {
        self.sections
            .iter()
            .find(|section| section.extent.what == name)
    }

    /// Go's table of functions.
    pub(crate) fn go_functions(&self) -> Option<&Section> {
        Pclntab::SECTIONS.iter().find_map(|name| self.section(name))
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
            let Ok(bytes) = section.extent.read(source, MAX_SYMBOLS) else {
                continue;
            };
            functions.extend(
                entries::<Symbol>(&bytes)
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

fn code(elf: &Elf) -> Result<Vec<Segment>, Refused> {
    let mut segments: Vec<Segment> = elf.loaded(PF_X).collect();
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

/// Those that anything here asks for.
fn sections(elf: &Elf) -> Vec<Section> {
    let in_file = elf.sections.iter();
    let in_file = in_file.filter(|section| section.sh_type.get(LE) != SHT_NOBITS);
    let known = in_file.filter_map(|section| {
        let name = elf.name(section);
        let what = SECTIONS.iter().find(|known| known.as_bytes() == name)?;
        Some(Section {
            extent: elf.extent(what, section),
            address: section.sh_addr.get(LE),
            flags: section.sh_flags.get(LE),
        })
    });
    known.take(4 * SECTIONS.len()).collect()
}
