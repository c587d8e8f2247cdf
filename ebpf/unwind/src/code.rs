//! The code segments and unwind sections of a program or library, from its headers.

use crate::UnwindTableError;
use object::elf::*;
use profcol_elf::{Elf, Extent, LE, Machine, Pclntab, Segment, Source, Symbol, entries};

/// Linkers create one; binary rewriters and runtimes mapped over huge pages up to four.
const MAX_EXECUTABLE_SEGMENTS: usize = 64;
/// About half a million symbols.
const MAX_SYMBOLS: u64 = 16 << 20;
/// The range of a relative call, and 4 MiB of page index.
const MAX_CODE: u64 = 2 << 30;

/// The code of a file and its sources of unwind information.
#[derive(Debug)]
pub struct ElfCode {
    pub machine: Machine,
    /// The executable segments by file offset: at least one, without overlaps.
    pub segments: Vec<Segment>,
    pub build_id: Option<Box<[u8]>>,
    pub go_build_id: Option<Box<str>>,
    /// Whether it is a library or a position-independent program.
    pub position_independent: bool,
    /// Whether it requests a dynamic linker, as dynamic programs do.
    pub interpreter: bool,
    /// Whether it has a dynamic section. Only non-PIE static programs have none.
    pub dynamic: bool,
    /// Whether it has a symbol table besides the dynamic one.
    pub symbols: bool,
    pub entry: u64,
    pub(crate) sections: Vec<Section>,
    /// Address and extent of `.eh_frame_hdr`, for files without section headers.
    pub(crate) eh_frame_hdr: Option<(u64, Extent)>,
    /// All loaded segments, including those without code.
    pub(crate) loaded: Vec<Segment>,
}

/// A function symbol; a size of 0 means unknown.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FunctionSymbol {
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
    pub fn read(source: &(impl Source + ?Sized)) -> Result<Self, UnwindTableError> {
        let elf: Elf = Elf::read_lenient(source)?;
        let machine = elf.machine()?;
        if !matches!(elf.header.e_type.get(LE), ET_EXEC | ET_DYN) {
            return Err(UnwindTableError::Unsupported {
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

    /// Whether it runs without a dynamic linker.
    pub fn is_static(&self) -> bool {
        !self.interpreter && (!self.dynamic || self.entry != 0)
    }

    pub fn is_go(&self) -> bool {
        self.go_build_id.is_some()
            || self.go_functions().is_some()
            || self.section(".go.buildinfo").is_some()
    }

    /// Whether the file has any unwind information. Otherwise its code is unwound by its instructions where they can be
    /// decoded, else by frame pointers.
    pub fn is_described(&self) -> bool {
        let sections = [".eh_frame", ".debug_frame"];
        sections.iter().any(|name| self.section(name).is_some())
            || self.eh_frame_hdr.is_some()
            || self.go_functions().is_some()
    }

    /// The file range from the first to the last code segment.
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

    /// Whether only the kernel jumps to the entry, as in programs.
    pub(crate) fn is_entered_by_kernel(&self) -> bool {
        // Old linkers set the entry of libraries to an arbitrary function.
        self.interpreter || !self.position_independent
    }

    /// The functions with symbols.
    pub(crate) fn functions(&self, source: &(impl Source + ?Sized)) -> Vec<FunctionSymbol> {
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
                    .map(|symbol| FunctionSymbol {
                        start: symbol.st_value.get(LE),
                        size: symbol.st_size.get(LE),
                    }),
            );
        }
        functions
    }

    /// The executable segment that contains this address.
    pub(crate) fn segment_at(&self, address: u64) -> Option<&Segment> {
        self.segments.iter().find(|segment| segment.holds(address))
    }
}

fn code(elf: &Elf) -> Result<Vec<Segment>, UnwindTableError> {
    let mut segments: Vec<Segment> = elf.loaded(PF_X).collect();
    segments.sort_by_key(|segment| segment.file_offset);
    let (Some(first), Some(last)) = (segments.first(), segments.last()) else {
        return Err(UnwindTableError::Unsupported {
            why: "no code in it",
        });
    };
    let size = last.file_end() - first.file_offset;
    let overlap = segments
        .windows(2)
        .any(|pair| matches!(pair, [a, b] if a.file_end() > b.file_offset));
    if overlap {
        return Err(UnwindTableError::Broken {
            what: "the order of the executable segments",
        });
    }
    if size > MAX_CODE {
        return Err(UnwindTableError::TooLarge {
            what: "the code in bytes",
            size,
            limit: MAX_CODE,
        });
    }
    if segments.len() > MAX_EXECUTABLE_SEGMENTS {
        return Err(UnwindTableError::TooLarge {
            what: "the number of executable segments",
            size: segments.len() as u64,
            limit: MAX_EXECUTABLE_SEGMENTS as u64,
        });
    }
    Ok(segments)
}

/// The sections used by this crate.
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
