//! Selects the sections needed for symbolization.
//!
//! Kept: symbol and string tables, DWARF (compressed sections too), Go's function table, notes, and the small sections
//! that name the stubs of the dynamic linker. Dropped: everything used at run time, that is code, constants, data and
//! unwind tables. DWARF whose main part is in another file is also dropped, because readers that find it ignore the
//! symbols. When space is short, so is DWARF that is not needed to resolve functions and lines.

use object::elf::{
    SHT_DYNSYM, SHT_NOTE, SHT_REL, SHT_RELA, SHT_STRTAB, SHT_SYMTAB, SHT_SYMTAB_SHNDX,
};

use profcol_elf::{LE, Pclntab, SectionHeader};

const BY_NAME: [&[u8]; 9] = [
    b".comment",
    b".data.rel.ro.gosymtab",
    b".gnu_debugaltlink",
    b".gnu_debugdata",
    b".gnu_debuglink",
    b".go.buildinfo",
    b".gosymtab",
    b".plt",
    b".plt.got",
];

/// What a file can be used for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Contents {
    /// All of it, or nearly so.
    pub dwarf: bool,
    pub symbols: bool,
    /// The full symbol table, not only the dynamic one.
    pub all_symbols: bool,
    pub go_functions: bool,
}

/// How much DWARF to keep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dwarf {
    All,
    /// The sections needed for functions, inlined frames and lines.
    Lines,
    None,
}

/// Variable locations, macros, unwind information, and indices for debuggers.
const NOT_FOR_LINES: [&[u8]; 12] = [
    b"aranges",
    b"frame",
    b"gdb_scripts",
    b"gnu_pubnames",
    b"gnu_pubtypes",
    b"loc",
    b"loclists",
    b"macinfo",
    b"macro",
    b"names",
    b"pubnames",
    b"pubtypes",
];

pub fn is_dwarf(name: &[u8]) -> bool {
    part_of_dwarf(name).is_some()
}

fn part_of_dwarf(name: &[u8]) -> Option<&[u8]> {
    let part = name.strip_prefix(b".debug_");
    part.or_else(|| name.strip_prefix(b".zdebug_"))
}

/// Whether to keep the section; records its use in `contents`.
pub fn is_kept(
    name: &[u8],
    section: &SectionHeader,
    dwarf: Dwarf,
    contents: &mut Contents,
) -> bool {
    if let Some(part) = part_of_dwarf(name) {
        let is_kept = match dwarf {
            Dwarf::All => true,
            Dwarf::Lines => !NOT_FOR_LINES.contains(&part),
            Dwarf::None => false,
        };
        contents.dwarf |= is_kept && part == b"info";
        return is_kept;
    }
    if Pclntab::SECTIONS.iter().any(|it| it.as_bytes() == name) {
        contents.go_functions = true;
        return true;
    }
    match section.sh_type.get(LE) {
        kind @ (SHT_SYMTAB | SHT_DYNSYM) => {
            contents.symbols = true;
            contents.all_symbols |= kind == SHT_SYMTAB;
            true
        }
        SHT_STRTAB | SHT_SYMTAB_SHNDX | SHT_NOTE | SHT_REL | SHT_RELA => true,
        _ => BY_NAME.contains(&name),
    }
}
