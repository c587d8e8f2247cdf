//! Look-ups in an executable file, for the detection of interpreters.

use std::cell::OnceCell;
use std::collections::HashMap;
use std::ops::Range;

use memchr::{memchr, memmem};
use object::LittleEndian;
use object::elf::{
    R_X86_64_64, R_X86_64_DTPMOD64, R_X86_64_RELATIVE, R_X86_64_TPOFF64, Rela64, SHN_UNDEF,
    SHT_DYNSYM, SHT_SYMTAB, STT_FUNC,
};
use profcol_ebpf_unwind::{ElfCode, Index};
use profcol_elf::{Elf, Extent, LE, Machine, Source, Symbol, entries};

/// About half a million symbols.
const MAX_SYMBOLS: u64 = 16 << 20;
const MAX_NAMES: u64 = 32 << 20;
/// Over a million relocations.
const MAX_RELOCATIONS: u64 = 32 << 20;
/// Log2 of the size of table entries.
const GLIBC_TABLE_SHIFT: u32 = 4;
const MUSL_TABLE_SHIFT: u32 = 3;
const MAX_CONSTANTS: usize = 4096;
/// Maximum amount of data to search for a string.
const MAX_SEARCHED: u64 = 32 << 20;
/// Maximum amount of data to search in parts: Node.js has 45 MiB of constants, ICU's among them.
const MAX_SEARCHED_IN_PARTS: u64 = 128 << 20;
const PART_BYTES: u64 = 1 << 20;

pub struct ElfFile<'a, S: ?Sized> {
    pub code: &'a ElfCode,
    pub source: &'a S,
    pub elf: Elf,
    /// `.dynsym`, which `strip` keeps, and `.symtab`; read lazily.
    tables: [(u32, OnceCell<Option<SymbolTable>>); 2],
    /// Read lazily.
    relocations: OnceCell<Option<Vec<u8>>>,
}

struct SymbolTable {
    symbols: Vec<u8>,
    names: Vec<u8>,
}

/// The GOT entry of a thread-local variable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ThreadLocal {
    /// Its module, followed by the offset in the module's block.
    Module(u64),
    /// Its offset from the thread pointer.
    Offset(u64),
}

/// Addresses before relocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FoundSymbol {
    pub address: u64,
    pub size: u64,
}

impl<'a, S: Source + ?Sized> ElfFile<'a, S> {
    pub fn read(code: &'a ElfCode, source: &'a S) -> Option<Self> {
        let elf = Elf::read_lenient(source).ok()?;
        Some(Self {
            code,
            source,
            elf,
            tables: [SHT_DYNSYM, SHT_SYMTAB].map(|kind| (kind, OnceCell::new())),
            relocations: OnceCell::new(),
        })
    }

    pub fn machine(&self) -> Machine {
        self.code.machine
    }

    /// The symbols with these names; searches `.dynsym`, which `strip` keeps, first.
    pub fn symbols<const N: usize>(&self, names: [&str; N]) -> [Option<FoundSymbol>; N] {
        Self::find(self.tables(), names)
    }

    fn find<'t, const N: usize>(
        tables: impl Iterator<Item = &'t SymbolTable>,
        names: [&str; N],
    ) -> [Option<FoundSymbol>; N] {
        let mut found = [None; N];
        for table in tables {
            let offsets = names.map(|name| offsets_of(&table.names, name));
            if offsets.iter().all(Vec::is_empty) {
                continue;
            }
            for symbol in table.defined() {
                let name = symbol.st_name.get(LE) as usize;
                for (slot, offsets) in found.iter_mut().zip(&offsets) {
                    if slot.is_none() && offsets.binary_search(&name).is_ok() {
                        *slot = Some(FoundSymbol {
                            address: symbol.st_value.get(LE),
                            size: symbol.st_size.get(LE),
                        });
                    }
                }
            }
        }
        found
    }

    /// The same, only of those that the file exports.
    pub fn exported<const N: usize>(&self, names: [&str; N]) -> [Option<FoundSymbol>; N] {
        Self::find(self.tables().take(1), names)
    }

    /// The code of functions whose names `choose` accepts, with their names; sorted.
    pub fn functions_named(&self, choose: impl Fn(&str) -> bool) -> Vec<(Range<u64>, String)> {
        let mut found = Vec::new();
        for table in self.tables() {
            let functions = table
                .defined()
                .filter(|symbol| symbol.st_info & 0xf == STT_FUNC && symbol.st_size.get(LE) > 0);
            for symbol in functions {
                if let Some(name) = table.name(symbol).filter(|name| choose(name)) {
                    let start = symbol.st_value.get(LE);
                    let end = start.saturating_add(symbol.st_size.get(LE));
                    found.push((start..end, name.to_owned()));
                }
            }
        }
        found.sort_unstable_by_key(|(range, _)| (range.start, range.end));
        found.dedup();
        found
    }

    /// The values of exported constants with this prefix, by the rest of the name.
    pub fn numbers(&self, prefix: &str) -> HashMap<String, u32> {
        let mut found = HashMap::new();
        for table in self.tables().take(1) {
            for symbol in table.defined() {
                if let Some(name) = table.name(symbol)
                    && let Some(rest) = name.strip_prefix(prefix)
                    && found.len() < MAX_CONSTANTS
                    && let Some(value) = self.number(symbol.st_value.get(LE))
                {
                    found.insert(rest.to_owned(), value);
                }
            }
        }
        found
    }

    /// The 32-bit number at an address.
    pub fn number(&self, address: u64) -> Option<u32> {
        let bytes = self.loaded(address, 4)?;
        Some(u32::from_le_bytes(*bytes.first_chunk()?))
    }

    /// The longest code range without unwind information, if it has at least this many bytes.
    pub fn longest_gap(&self, at_least: u64) -> Option<Range<u64>> {
        let index = Index::open(self.code, self.source).ok()?;
        index.longest_gap(self.source, at_least)
    }

    fn tables(&self) -> impl Iterator<Item = &SymbolTable> {
        self.tables.iter().filter_map(|(kind, table)| {
            let table = table.get_or_init(|| self.read_table(*kind));
            table.as_ref()
        })
    }

    fn read_table(&self, kind: u32) -> Option<SymbolTable> {
        let mut sections = self.elf.sections.iter();
        let section = sections.find(|section| section.sh_type.get(LE) == kind)?;
        let names = self.elf.sections.get(section.sh_link.get(LE) as usize)?;
        let read = |what, section, limit| self.elf.content(self.source, what, section, limit);
        Some(SymbolTable {
            symbols: read("symbols", section, MAX_SYMBOLS).ok()?,
            names: read("symbol names", names, MAX_NAMES).ok()?,
        })
    }

    /// The address and first bytes of a section.
    pub fn section(&self, name: &str, limit: usize) -> Option<(u64, Vec<u8>)> {
        let section = self.elf.find(name.as_bytes())?;
        let mut extent = self.elf.extent("a section", section);
        extent.size = extent.size.min(limit as u64);
        let bytes = extent.read(self.source, limit as u64).ok()?;
        Some((section.sh_addr.get(LE), bytes))
    }

    /// The bytes after the first occurrence of the text in the section.
    pub fn text_behind(&self, section: &str, text: &str, length: usize) -> Option<Vec<u8>> {
        let section = self.elf.find(section.as_bytes())?;
        let bytes = self
            .elf
            .content(self.source, "constants", section, MAX_SEARCHED)
            .ok()?;
        let at = memmem::find(&bytes, text.as_bytes())? + text.len();
        let rest = bytes.get(at..)?;
        Some(rest.get(..length.min(rest.len()))?.to_vec())
    }

    /// The first answer of `find` to a part of the section. Parts overlap by `overlap` bytes.
    pub fn search<T>(
        &self,
        section: &str,
        overlap: usize,
        find: impl Fn(&[u8]) -> Option<T>,
    ) -> Option<T> {
        let section = self.elf.find(section.as_bytes())?;
        let whole = self.elf.extent("constants", section);
        let mut rest = whole.size.min(MAX_SEARCHED_IN_PARTS);
        let mut offset = whole.offset;
        while rest > 0 {
            let size = rest.min(PART_BYTES + overlap as u64);
            let part = Extent {
                offset,
                size,
                ..whole
            };
            let found = find(&part.read(self.source, size).ok()?);
            if found.is_some() {
                return found;
            }
            offset = offset.checked_add(PART_BYTES)?;
            rest = rest.saturating_sub(PART_BYTES);
        }
        None
    }

    /// The GOT entries that lead to a thread-local variable.
    pub fn thread_local(&self, name: &str) -> Option<ThreadLocal> {
        let index = self.dynamic_index(name)?;
        self.relocations().iter().find_map(|relocation| {
            if relocation.r_sym(LE, false) != index {
                return None;
            }
            let slot = relocation.r_offset.get(LE);
            match relocation.r_type(LE, false) {
                R_X86_64_DTPMOD64 => Some(ThreadLocal::Module(slot)),
                R_X86_64_TPOFF64 => Some(ThreadLocal::Offset(slot)),
                _ => None,
            }
        })
    }

    /// The addresses in a table; 0 for those of other files.
    pub fn pointers(&self, address: u64, count: usize) -> Vec<u64> {
        let bytes = self.loaded(address, count * 8).unwrap_or_default();
        let (words, _) = bytes.as_chunks();
        let mut found: Vec<u64> = words.iter().map(|word| u64::from_le_bytes(*word)).collect();
        let symbols = self
            .tables()
            .next()
            .map(SymbolTable::all)
            .unwrap_or_default();
        for relocation in self.relocations() {
            let distance = relocation.r_offset.get(LE).wrapping_sub(address);
            let slot = usize::try_from(distance / 8).ok();
            let Some(slot) = slot.and_then(|slot| found.get_mut(slot)) else {
                continue;
            };
            let addend = relocation.r_addend.get(LE) as u64;
            match relocation.r_type(LE, false) {
                R_X86_64_RELATIVE => *slot = addend,
                R_X86_64_64 => {
                    let symbol = symbols.get(relocation.r_sym(LE, false) as usize);
                    *slot = symbol.map_or(0, |symbol| symbol.st_value.get(LE).wrapping_add(addend));
                }
                _ => {}
            }
        }
        found
    }

    /// The places of pointers into the file, and where they point.
    pub fn relative_pointers(&self) -> impl Iterator<Item = (u64, u64)> {
        let relative = self
            .relocations()
            .iter()
            .filter(|it| it.r_type(LE, false) == R_X86_64_RELATIVE);
        relative.map(|it| (it.r_offset.get(LE), it.r_addend.get(LE) as u64))
    }

    /// The size of an entry in a thread's table of TLS blocks, as its log2, in the C library that the file uses.
    pub fn thread_table_shift(&self) -> u32 {
        match self.text_behind(".dynstr", "libc.musl", 0) {
            Some(_) => MUSL_TABLE_SHIFT,
            None => GLIBC_TABLE_SHIFT,
        }
    }

    fn relocations(&self) -> &[Rela64<LittleEndian>] {
        let bytes = self.relocations.get_or_init(|| {
            let section = self.elf.find(b".rela.dyn")?;
            let read = self
                .elf
                .content(self.source, "relocations", section, MAX_RELOCATIONS);
            read.ok()
        });
        entries::<Rela64<LittleEndian>>(bytes.as_deref().unwrap_or_default())
    }

    /// The number of a symbol in `.dynsym`.
    pub fn dynamic_index(&self, name: &str) -> Option<u32> {
        let table = self.tables().next()?;
        let names = offsets_of(&table.names, name);
        let mut symbols = table.all().iter();
        let index = symbols.position(|symbol| {
            names
                .binary_search(&(symbol.st_name.get(LE) as usize))
                .is_ok()
        })?;
        u32::try_from(index).ok()
    }

    /// The bytes at an address.
    pub fn loaded(&self, address: u64, size: usize) -> Option<Vec<u8>> {
        let segment = self.elf.loaded(0).find(|segment| segment.holds(address))?;
        let offset = segment.file_offset + (address - segment.address);
        if size as u64 > segment.file_end().checked_sub(offset)? {
            return None;
        }
        let mut bytes = vec![0; size];
        self.source.read_at(&mut bytes, offset).ok()?;
        Some(bytes)
    }

    /// Offset in the file = address - this.
    pub fn code_delta(&self, address: u64) -> Option<u64> {
        let mut segments = self.code.segments.iter();
        let segment = segments.find(|segment| segment.holds(address))?;
        Some(segment.address.wrapping_sub(segment.file_offset))
    }
}

impl SymbolTable {
    fn all(&self) -> &[Symbol] {
        entries(&self.symbols)
    }

    fn defined(&self) -> impl Iterator<Item = &Symbol> {
        let symbols = self.all().iter();
        symbols.filter(|symbol| symbol.st_shndx.get(LE) != SHN_UNDEF)
    }

    /// The name without compiler suffixes after a dot.
    fn name(&self, symbol: &Symbol) -> Option<&str> {
        let rest = self.names.get(symbol.st_name.get(LE) as usize..)?;
        let name = rest.get(..memchr(0, rest)?)?;
        str::from_utf8(name).ok()?.split('.').next()
    }
}

/// The offsets of a name in a string table, where it may be the suffix of another; sorted.
fn offsets_of(strings: &[u8], name: &str) -> Vec<usize> {
    let mut pattern = Vec::with_capacity(name.len() + 1);
    pattern.extend(name.as_bytes());
    pattern.push(0);
    memmem::find_iter(strings, &pattern)
        .take(MAX_CONSTANTS)
        .collect()
}
