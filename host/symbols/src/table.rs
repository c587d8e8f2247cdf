//! The functions of a symbol table.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;

use foldhash::fast::RandomState;
use gimli::Reader;
use object::elf::{
    SHF_EXECINSTR, SHN_LORESERVE, SHN_XINDEX, SHT_DYNSYM, SHT_SYMTAB, STT_FUNC, STT_GNU_IFUNC,
    STT_NOTYPE, Sym64,
};
use object::{LittleEndian, pod};
use profcol_elf::{ElfError, LE, SectionHeader, has_data};

use crate::image::Image;
use crate::search_hint::SearchHint;
use crate::view::Section;

type Entry = Sym64<LittleEndian>;

/// Symbols per read.
const PIECE: usize = 1024;
/// The largest browsers have a million and a half.
const MAX_SYMBOLS: usize = 4 << 20;
/// Reads allowed per table; each piece is one read.
const READS: u64 = 1 << 20;

/// Functions sorted by address.
pub struct SymbolTable {
    rows: Vec<Row>,
    hint: SearchHint,
    names: Rc<Section>,
    name_cache: RefCell<NameCache>,
    fuel: crate::view::Fuel,
}

/// Names already read, by offset.
#[derive(Default)]
struct NameCache {
    names: HashMap<u32, Arc<str>, RandomState>,
    weight: usize,
}

#[derive(Clone, Copy)]
pub struct Row {
    pub address: u64,
    /// 0 if unknown; saturates.
    size: u32,
    name: u32,
}

impl SymbolTable {
    /// `None` if no table contains a function.
    pub fn read(image: &Image) -> Result<Option<Self>, ElfError> {
        for kind in [SHT_SYMTAB, SHT_DYNSYM] {
            let is_it = |it: &&SectionHeader| it.sh_type.get(LE) == kind && has_data(it);
            let Some(section) = image.elf.sections.iter().find(is_it) else {
                continue;
            };
            let Some(names) = image.elf.sections.get(section.sh_link.get(LE) as usize) else {
                continue;
            };
            image.fuel.fill(READS);
            let rows = rows(image, section)?;
            if !rows.is_empty() {
                let names = image.section(names)?;
                let fuel = image.fuel.clone();
                return Ok(Some(Self {
                    rows,
                    hint: SearchHint::default(),
                    names,
                    name_cache: RefCell::default(),
                    fuel,
                }));
            }
        }
        Ok(None)
    }

    /// The function that contains this address.
    pub fn find(&self, address: u64) -> Option<Row> {
        let after = self
            .hint
            .partition_point(&self.rows, |row| row.address <= address);
        let row = self.rows.get(after.checked_sub(1)?)?;
        let is_behind = row.size > 0 && address - row.address >= u64::from(row.size);
        (!is_behind).then_some(*row)
    }

    pub fn name(&self, row: Row) -> Option<Arc<str>> {
        let mut name_cache = self.name_cache.borrow_mut();
        if let Some(name) = name_cache.names.get(&row.name) {
            return Some(Arc::clone(name));
        }
        self.fuel.fill(READS);
        let name: Arc<str> = self.names.view().text_at(row.name as usize)?.into();
        if name.is_empty() {
            return None;
        }
        name_cache.weight += size_of::<(u32, Arc<str>)>() + 2 * size_of::<usize>() + name.len();
        name_cache.names.insert(row.name, Arc::clone(&name));
        Some(name)
    }

    pub fn weight(&self) -> usize {
        let rows = self.rows.capacity() * size_of::<Row>();
        rows + self.names.weight() + self.name_cache.borrow().weight
    }

    pub fn forget_names(&self) {
        self.name_cache.take();
    }

    pub fn forget_blocks(&self) {
        self.names.forget_blocks();
    }
}

fn rows(image: &Image, section: &SectionHeader) -> Result<Vec<Row>, ElfError> {
    let is_code: Vec<bool> = image
        .elf
        .sections
        .iter()
        .map(|section| section.sh_flags.get(LE) & u64::from(SHF_EXECINSTR) != 0)
        .collect();
    let content = image.section(section)?;
    let mut view = content.view();
    let mut rows = Vec::new();
    let mut piece = vec![0; PIECE * size_of::<Entry>()];
    while view.len() >= size_of::<Entry>() {
        let size = piece
            .len()
            .min(view.len() / size_of::<Entry>() * size_of::<Entry>());
        let piece = piece.get_mut(..size).unwrap_or_default();
        if view.read_slice(piece).is_err() {
            break;
        }
        let count = size / size_of::<Entry>();
        let entries = pod::slice_from_bytes::<Entry>(piece, count).map_or(&[][..], |(it, _)| it);
        rows.extend(
            entries
                .iter()
                .filter(|it| is_function(it, &is_code))
                .map(row),
        );
        if rows.len() > MAX_SYMBOLS {
            return Err(ElfError::TooLarge {
                what: "the symbol table",
                offset: section.sh_offset.get(LE),
                size: section.sh_size.get(LE),
                limit: (MAX_SYMBOLS * size_of::<Entry>()) as u64,
            });
        }
    }
    content.forget_blocks();
    // At each address the largest symbol wins, among equal ones the last.
    rows.sort_by_key(|row| (row.address, row.size));
    rows.reverse();
    rows.dedup_by_key(|row| row.address);
    rows.reverse();
    rows.shrink_to_fit();
    Ok(rows)
}

fn is_function(entry: &Entry, is_code: &[bool]) -> bool {
    let section = entry.st_shndx.get(LE);
    let is_in_code = match section {
        SHN_XINDEX => true,
        SHN_LORESERVE.. => false,
        _ => is_code.get(usize::from(section)) == Some(&true),
    };
    let is_named = entry.st_name.get(LE) != 0;
    let kind = entry.st_info & 0xf;
    is_in_code && is_named && matches!(kind, STT_FUNC | STT_GNU_IFUNC | STT_NOTYPE)
}

fn row(entry: &Entry) -> Row {
    Row {
        address: entry.st_value.get(LE),
        size: u32::try_from(entry.st_size.get(LE)).unwrap_or(u32::MAX),
        name: entry.st_name.get(LE),
    }
}
