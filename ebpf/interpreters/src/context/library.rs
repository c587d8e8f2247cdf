//! Thread-local variables that a library exports, and where they are in a process.

use object::elf::{
    PT_INTERP, R_AARCH64_TLS_DTPMOD, R_AARCH64_TLS_TPREL, R_AARCH64_TLSDESC, R_X86_64_DTPMOD64,
    R_X86_64_TLSDESC, R_X86_64_TPOFF64,
};
use profcol_ebpf_common::context::library::{BlockTable, LibraryVariable, kind};
use profcol_ebpf_common::context::{custom_labels, otel};
use profcol_ebpf_unwind::ElfCode;
use profcol_elf::{Extent, LE, Machine, Mapping, Segment, Source};

use super::tls;
use crate::elf_file::{ElfFile, FoundSymbol};
use crate::memory::{Memory, MemoryError};

/// Programs with more TLS modules do not exist.
const MAX_MODULES: u64 = 1 << 16;
const MAX_INTERPRETER: u64 = 256;
/// Bytes of a descriptor's function to compare.
const FUNCTION_BYTES: usize = 16;

/// What a file tells about the contexts of the processes that map it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ContextFile {
    /// A program that requests musl's dynamic linker. Its own variables are found when its table is built, see
    /// [`detect`](super::detect).
    MuslProgram,
    Library(Library),
}

/// A library with at least one variable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Library {
    machine: Machine,
    variables: Vec<Exported>,
    segments: Vec<Segment>,
}

/// A variable without words that tell where it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no code in the library uses its variable `{0}`")]
pub struct UnusedVariable(&'static str);

/// An exported variable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exported {
    kind: u32,
    access: Access,
    /// Address of the words that tell where it is, before relocation.
    slot: u64,
    /// From the place to which the words lead.
    offset: u64,
}

/// What the dynamic linker writes for the code that uses a variable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Access {
    /// A function and its argument: the distance from the thread pointer, or the address of a module and an offset.
    Descriptor,
    /// A module and an offset in its block.
    Module,
    /// Only the module.
    Block,
    /// The distance from the thread pointer.
    Distance,
}

/// The C library of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CLibrary {
    Glibc,
    Musl,
}

impl CLibrary {
    /// How it lays out a thread's table of TLS blocks.
    pub fn block_table(self, machine: Machine) -> BlockTable {
        const fn before(bytes: u64) -> u64 {
            bytes.wrapping_neg()
        }
        let (pointer, last, shift) = match (self, machine) {
            // `tcbhead_t`
            (Self::Glibc, Machine::X86_64) => (8, before(16), 4),
            (Self::Glibc, Machine::Aarch64) => (0, before(16), 4),
            // `struct pthread`, which ends at the thread pointer on aarch64.
            (Self::Musl, Machine::X86_64) => (8, 0, 3),
            (Self::Musl, Machine::Aarch64) => (before(8), 0, 3),
        };
        BlockTable {
            pointer,
            last,
            shift,
        }
    }
}

impl ContextFile {
    /// None if it tells nothing.
    pub fn read(
        code: &ElfCode,
        source: &(impl Source + ?Sized),
    ) -> Result<Option<Self>, UnusedVariable> {
        let Some(file) = ElfFile::read(code, source) else {
            return Ok(None);
        };
        if code.interpreter {
            return Ok(requests_musl(&file).then_some(Self::MuslProgram));
        }
        let Some(block_bytes) = tls::block_bytes(&file).filter(|_| !code.is_static()) else {
            return Ok(None);
        };
        let names = [
            otel::SYMBOL,
            custom_labels::SYMBOL,
            custom_labels::VERSION_SYMBOL,
        ];
        let [otel, labels, version] = file.exported(names);
        let version = version.and_then(|symbol| file.number(symbol.address));
        let labels = labels.filter(|_| version == Some(custom_labels::VERSION));
        let mut variables = Vec::new();
        for (kind, name, symbol) in [
            (kind::OTEL, otel::SYMBOL, otel),
            (kind::CUSTOM_LABELS, custom_labels::SYMBOL, labels),
        ] {
            let Some(symbol) = symbol else {
                continue;
            };
            let is_inside = symbol
                .address
                .checked_add(8)
                .is_some_and(|end| end <= block_bytes);
            let found = Exported::find(&file, kind, name, symbol).filter(|_| is_inside);
            variables.push(found.ok_or(UnusedVariable(name))?);
        }
        Ok((!variables.is_empty()).then(|| {
            Self::Library(Library {
                machine: code.machine,
                variables,
                segments: code.segments.clone(),
            })
        }))
    }
}

impl Library {
    /// The distance of its addresses in a process from those in the file.
    pub fn bias(&self, mapping: &Mapping) -> Option<u64> {
        let size = mapping.range.end - mapping.range.start;
        let end = mapping.offset.saturating_add(size);
        let mut segments = self.segments.iter();
        let segment = segments.find(|it| it.file_offset < end && mapping.offset < it.file_end())?;
        let start = mapping.range.start.wrapping_sub(mapping.offset);
        Some(start.wrapping_sub(segment.address.wrapping_sub(segment.file_offset)))
    }

    /// The layout of a thread's table in a process that maps it.
    pub fn block_table(&self, c_library: CLibrary) -> BlockTable {
        c_library.block_table(self.machine)
    }

    /// The variables in a process; those that the dynamic linker has not placed yet, or not any more, are missing.
    pub fn locate(
        &self,
        bias: u64,
        c_library: CLibrary,
        memory: &impl Memory,
    ) -> impl Iterator<Item = LibraryVariable> {
        let variables = self.variables.iter();
        variables.filter_map(move |variable| {
            let located = variable.locate(bias, self.machine, c_library, memory);
            located.ok().flatten()
        })
    }
}

impl Exported {
    /// By the relocations of the words, first those of this symbol, then those of the whole block.
    fn find(
        file: &ElfFile<'_, impl Source + ?Sized>,
        kind: u32,
        name: &str,
        symbol: FoundSymbol,
    ) -> Option<Self> {
        let [descriptor, module, distance] = match file.machine() {
            Machine::X86_64 => [R_X86_64_TLSDESC, R_X86_64_DTPMOD64, R_X86_64_TPOFF64],
            Machine::Aarch64 => [R_AARCH64_TLSDESC, R_AARCH64_TLS_DTPMOD, R_AARCH64_TLS_TPREL],
        };
        let index = file.dynamic_index(name)?;
        let relocations = tls::relocations(file);
        let of = |index: u32| {
            let of_symbol = relocations
                .iter()
                .filter(move |it| it.r_sym(LE, false) == index);
            of_symbol.filter_map(move |relocation| {
                let addend = relocation.r_addend.get(LE) as u64;
                let (access, offset) = match relocation.r_type(LE, false) {
                    it if it == descriptor => (Access::Descriptor, addend.wrapping_neg()),
                    it if it == distance => (Access::Distance, addend.wrapping_neg()),
                    it if it == module && index != 0 => (Access::Module, 0),
                    it if it == module => (Access::Block, 0),
                    _ => return None,
                };
                let offset = match index {
                    0 => offset.wrapping_add(symbol.address),
                    _ => offset,
                };
                Some(Self {
                    kind,
                    access,
                    slot: relocation.r_offset.get(LE),
                    offset,
                })
            })
        };
        of(index).next().or_else(|| of(0).next())
    }

    /// None if the dynamic linker has not placed it yet.
    fn locate(
        &self,
        bias: u64,
        machine: Machine,
        c_library: CLibrary,
        memory: &impl Memory,
    ) -> Result<Option<LibraryVariable>, MemoryError> {
        let slot = self.slot.wrapping_add(bias);
        let fixed = LibraryVariable {
            kind: self.kind,
            witness: slot,
            witnessed: memory.word(slot)?,
            ..LibraryVariable::default()
        };
        let of_module = |module: u64, offset: u64, variable| {
            let is_module = (1..=MAX_MODULES).contains(&module);
            is_module.then_some(LibraryVariable {
                module: module as u32,
                offset: offset.wrapping_add(self.offset),
                ..variable
            })
        };
        let found = match self.access {
            Access::Distance => (fixed.witnessed != 0).then_some(LibraryVariable {
                offset: fixed.witnessed.wrapping_add(self.offset),
                ..fixed
            }),
            Access::Block => of_module(fixed.witnessed, 0, fixed),
            Access::Module => {
                let offset = memory.word(slot.wrapping_add(8))?;
                of_module(fixed.witnessed, offset, fixed)
            }
            Access::Descriptor => {
                let function = fixed.witnessed;
                let argument = memory.word(slot.wrapping_add(8))?;
                if function == 0 {
                    return Ok(None);
                }
                let fixed = LibraryVariable {
                    witness: slot.wrapping_add(8),
                    witnessed: argument,
                    ..fixed
                };
                if returns_argument(machine, &memory.bytes(function, FUNCTION_BYTES)?) {
                    Some(LibraryVariable {
                        offset: argument.wrapping_add(self.offset),
                        ..fixed
                    })
                } else {
                    let word = |index: u64| memory.word(argument.wrapping_add(8 * index));
                    let generation = match c_library {
                        CLibrary::Glibc => word(2)?,
                        CLibrary::Musl => 0,
                    };
                    of_module(
                        word(0)?,
                        word(1)?,
                        LibraryVariable {
                            generation,
                            ..fixed
                        },
                    )
                }
            }
        };
        Ok(found)
    }
}

/// Whether the function of a descriptor returns its argument, the distance from the thread pointer.
pub fn returns_argument(machine: Machine, code: &[u8]) -> bool {
    match machine {
        // endbr64; mov rax, [rax + 8]; ret
        Machine::X86_64 => {
            let code = code.strip_prefix(&[0xf3, 0x0f, 0x1e, 0xfa]).unwrap_or(code);
            code.starts_with(&[0x48, 0x8b, 0x40, 0x08, 0xc3])
        }
        // bti c; ldr x0, [x0, #8]; ret
        Machine::Aarch64 => {
            let code = code.strip_prefix(&[0x5f, 0x24, 0x03, 0xd5]).unwrap_or(code);
            code.starts_with(&[0x00, 0x04, 0x40, 0xf9, 0xc0, 0x03, 0x5f, 0xd6])
        }
    }
}

fn requests_musl(file: &ElfFile<'_, impl Source + ?Sized>) -> bool {
    let mut programs = file.elf.programs.iter();
    let Some(segment) = programs.find(|it| it.p_type.get(LE) == PT_INTERP) else {
        return false;
    };
    let path = Extent {
        what: "the name of the dynamic linker",
        offset: segment.p_offset.get(LE),
        size: segment.p_filesz.get(LE),
    };
    let path = path.read(file.source, MAX_INTERPRETER).unwrap_or_default();
    memchr::memmem::find(&path, b"/ld-musl-").is_some()
}
