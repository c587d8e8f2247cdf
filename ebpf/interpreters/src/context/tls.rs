//! Thread-local variables.

use object::elf::{PT_TLS, R_X86_64_TPOFF64, Rela64, SHT_RELA};
use object::endian::LittleEndian;
use profcol_elf::{LE, Machine, ProgramHeader, Source, entries};

use crate::elf_file::ElfFile;

/// About half a million relocations.
const MAX_RELOCATIONS: u64 = 12 << 20;

/// Between the thread pointer and the variables of a program on aarch64.
const RESERVED: u64 = 16;

/// The distance of a program's thread-local variables from the thread pointer, which is behind them on x86-64, and before them on aarch64.
pub fn start(executable: &ElfFile<'_, impl Source + ?Sized>) -> Option<u64> {
    let segment = segment(executable)?;
    let alignment = segment.p_align.get(LE).max(1);
    match executable.machine() {
        Machine::X86_64 => {
            let size = segment.p_memsz.get(LE);
            let size = size.checked_next_multiple_of(alignment)?;
            Some(0u64.wrapping_sub(size))
        }
        Machine::Aarch64 => RESERVED.checked_next_multiple_of(alignment),
    }
}

/// The size of a thread's block with the file's variables.
pub fn block_bytes(file: &ElfFile<'_, impl Source + ?Sized>) -> Option<u64> {
    Some(segment(file)?.p_memsz.get(LE))
}

fn segment<'a>(file: &'a ElfFile<'_, impl Source + ?Sized>) -> Option<&'a ProgramHeader> {
    let mut programs = file.elf.programs.iter();
    programs.find(|program| program.p_type.get(LE) == PT_TLS)
}

/// The offset that the dynamic linker writes to this address.
pub fn offset_in_slot(executable: &ElfFile<'_, impl Source + ?Sized>, address: u64) -> Option<u64> {
    let relocation = relocations(executable).into_iter().find(|relocation| {
        relocation.r_offset.get(LE) == address
            && relocation.r_type(LE, false) == R_X86_64_TPOFF64
            && relocation.r_sym(LE, false) == 0
    })?;
    let addend = relocation.r_addend.get(LE) as u64;
    Some(start(executable)?.wrapping_add(addend))
}

/// The relocations of all sections, up to a limit.
pub fn relocations(file: &ElfFile<'_, impl Source + ?Sized>) -> Vec<Rela64<LittleEndian>> {
    let elf = &file.elf;
    let mut sections = elf.sections.iter();
    let mut found = Vec::new();
    let sections = sections
        .by_ref()
        .filter(|section| section.sh_type.get(LE) == SHT_RELA);
    for section in sections {
        let room = MAX_RELOCATIONS.saturating_sub(size_of_val(&*found) as u64);
        let read = elf.content(file.source, "relocations", section, room);
        if let Ok(bytes) = read {
            found.extend_from_slice(entries(&bytes));
        }
    }
    found
}
