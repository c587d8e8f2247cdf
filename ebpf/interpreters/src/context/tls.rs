//! Thread-local variables.

use object::elf::{PT_TLS, R_X86_64_TPOFF64, Rela64, SHT_RELA};
use object::endian::LittleEndian;
use profcol_elf::{LE, Source, entries};

use crate::elf_file::ElfFile;

/// About half a million relocations.
const MAX_RELOCATIONS: u64 = 12 << 20;

/// The distance of a program's thread-local variables from the thread pointer, which is behind them.
pub fn start(executable: &ElfFile<'_, impl Source + ?Sized>) -> Option<u64> {
    let mut programs = executable.elf.programs.iter();
    let segment = programs.find(|program| program.p_type.get(LE) == PT_TLS)?;
    let alignment = segment.p_align.get(LE).max(1);
    let size = segment.p_memsz.get(LE);
    let size = size.checked_next_multiple_of(alignment)?;
    Some(0u64.wrapping_sub(size))
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

/// The relocations of all sections.
fn relocations(executable: &ElfFile<'_, impl Source + ?Sized>) -> Vec<Rela64<LittleEndian>> {
    let elf = &executable.elf;
    let mut sections = elf.sections.iter();
    let mut found = Vec::new();
    let sections = sections
        .by_ref()
        .filter(|section| section.sh_type.get(LE) == SHT_RELA);
    for section in sections {
        let read = elf.content(executable.source, "relocations", section, MAX_RELOCATIONS);
        if let Ok(bytes) = read {
            found.extend_from_slice(entries(&bytes));
        }
    }
    found
}
