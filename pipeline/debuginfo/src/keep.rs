//! Which sections name code.
//!
//! Tables of symbols and their texts, DWARF as it is (compressed sections too), Go's table of
//! functions, notes; and the small ones by which stubs of the dynamic linker get their names. What
//! runs or is read at run time is dropped: code, constants, data, unwind tables. So is DWARF whose
//! greater part is in another file: whoever finds it looks at no symbols.

use object::elf::{
    SHT_DYNSYM, SHT_NOTE, SHT_REL, SHT_RELA, SHT_STRTAB, SHT_SYMTAB, SHT_SYMTAB_SHNDX,
};

use crate::elf::{LE, SectionHeader};
use crate::plan::Contents;

const GO_FUNCTIONS: [&[u8]; 2] = [b".gopclntab", b".data.rel.ro.gopclntab"];

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

/// Whether the section's bytes are kept, those of DWARF only if that is all there; what they are good
/// for is noted.
pub fn is_kept(
    name: &[u8],
    section: &SectionHeader,
    has_dwarf: bool,
    contents: &mut Contents,
) -> bool {
    let is_dwarf = [&b".debug_"[..], b".zdebug_"];
    if is_dwarf.iter().any(|prefix| name.starts_with(prefix)) {
        contents.dwarf |= has_dwarf && name.ends_with(b"debug_info");
        return has_dwarf;
    }
    if GO_FUNCTIONS.contains(&name) {
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
