//! The recently used units with the tables derived from them.

use std::cell::{Cell, OnceCell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;

use foldhash::fast::RandomState;
use gimli::{Dwarf, Section as _};

use super::functions::Functions;
use super::index::{HEADER_READS, Index};
use super::lines::Lines;
use super::name::Name;
use super::scopes::Scopes;
use super::split::{MAX_OPEN, Split, SplitFiles};
use crate::view::View;

/// Memory per byte of abbreviations in the file; these are most of a unit's memory.
const BYTES_PER_READ: u64 = 12;

#[derive(Default)]
pub struct Units {
    held: HashMap<u32, Rc<Unit>, RandomState>,
    clock: u64,
    /// `None` if no unit is split.
    splits: Option<SplitFiles>,
}

pub struct Unit {
    unit: gimli::Unit<View>,
    split: Option<Split>,
    functions: OnceCell<Functions>,
    lines: OnceCell<Lines>,
    /// Scopes of functions by entry.
    scopes: RefCell<HashMap<usize, Rc<Scopes>, RandomState>>,
    /// Names of functions and inlined calls by entry.
    names: RefCell<HashMap<usize, Name, RandomState>>,
    /// Excludes the tables built on first use.
    weight: Cell<usize>,
    last_used: Cell<u64>,
}

impl Units {
    pub fn with_splits(splits: SplitFiles) -> Self {
        Self {
            splits: Some(splits),
            ..Self::default()
        }
    }

    pub fn get(&mut self, dwarf: &Dwarf<View>, index: &Index, number: u32) -> Option<Rc<Unit>> {
        self.clock += 1;
        if let Some(unit) = self.held.get(&number) {
            unit.last_used.set(self.clock);
            return Some(Rc::clone(unit));
        }
        let fuel = dwarf.debug_info.reader().fuel();
        let before = fuel.left();
        let unit = fuel.limited(HEADER_READS, || {
            let header = dwarf.unit_header(index.offset(number)?).ok()?;
            dwarf.unit(header).ok()
        })?;
        let splits = self.splits.as_ref();
        let split =
            splits.and_then(|splits| fuel.limited(HEADER_READS, || splits.find(dwarf, &unit)));
        if split.as_ref().is_some_and(Split::is_file) {
            self.close_one_of_too_many();
        }
        let reads = before.saturating_sub(fuel.left());
        let unit = Rc::new(Unit {
            unit,
            split,
            functions: OnceCell::new(),
            lines: OnceCell::new(),
            scopes: RefCell::default(),
            names: RefCell::default(),
            weight: Cell::new(size_of::<Unit>() + (reads * BYTES_PER_READ) as usize),
            last_used: Cell::new(self.clock),
        });
        self.held.insert(number, Rc::clone(&unit));
        Some(unit)
    }

    pub fn weight(&self) -> usize {
        let units: usize = self.held.values().map(|unit| unit.weight()).sum();
        units + self.splits.as_ref().map_or(0, SplitFiles::weight)
    }

    pub fn forget_blocks(&self) {
        if let Some(splits) = &self.splits {
            splits.forget_blocks();
        }
        for split in self.held.values().filter_map(|it| it.split.as_ref()) {
            split.forget_blocks();
        }
    }

    pub fn forget_all(&mut self) {
        self.held.clear();
    }

    pub fn forget_oldest(&mut self) -> bool {
        self.forget_oldest_that(|_| true)
    }

    fn forget_oldest_that(&mut self, may_go: impl Fn(&Unit) -> bool) -> bool {
        let those = self.held.iter().filter(|(_, unit)| may_go(unit));
        let oldest = those.min_by_key(|(_, unit)| unit.last_used.get());
        let Some(number) = oldest.map(|(&number, _)| number) else {
            return false;
        };
        self.held.remove(&number);
        true
    }

    /// Makes room for another open file.
    fn close_one_of_too_many(&mut self) {
        if self.held.values().filter(|unit| unit.is_file()).count() >= MAX_OPEN {
            self.forget_oldest_that(Unit::is_file);
        }
    }
}

impl Unit {
    /// The unit that describes the code, which may be in another file than its lines.
    pub fn code<'u>(&'u self, dwarf: &'u Dwarf<View>) -> (&'u Dwarf<View>, &'u gimli::Unit<View>) {
        match &self.split {
            Some(split) => (&split.dwarf, &split.unit),
            None => (dwarf, &self.unit),
        }
    }

    /// Whether the executable only has its skeleton.
    pub fn is_split(&self) -> bool {
        self.split.is_some()
    }

    fn is_file(&self) -> bool {
        self.split.as_ref().is_some_and(Split::is_file)
    }

    pub fn functions(&self, dwarf: &Dwarf<View>) -> &Functions {
        self.functions.get_or_init(|| {
            let (dwarf, unit) = self.code(dwarf);
            Functions::read(dwarf, unit)
        })
    }

    pub fn lines(&self, dwarf: &Dwarf<View>) -> &Lines {
        self.lines.get_or_init(|| Lines::read(dwarf, &self.unit))
    }

    pub fn scopes(&self, dwarf: &Dwarf<View>, function: usize) -> Rc<Scopes> {
        if let Some(scopes) = self.scopes.borrow().get(&function) {
            return Rc::clone(scopes);
        }
        let (dwarf, unit) = self.code(dwarf);
        let scopes = Rc::new(Scopes::read(dwarf, unit, function));
        self.grow(size_of::<(usize, Rc<Scopes>, Scopes)>() + scopes.weight());
        self.scopes
            .borrow_mut()
            .insert(function, Rc::clone(&scopes));
        scopes
    }

    /// The cached name of an entry.
    pub fn name(&self, entry: usize) -> Option<Name> {
        self.names.borrow().get(&entry).cloned()
    }

    /// Reading a name again would cost more than the rest of a lookup.
    pub fn note_name(&self, entry: usize, name: Name) {
        self.grow(size_of::<(usize, Name)>() + 2 * size_of::<usize>() + name.text.len());
        self.names.borrow_mut().insert(entry, name);
    }

    fn grow(&self, bytes: usize) {
        self.weight.set(self.weight.get() + bytes);
    }

    fn weight(&self) -> usize {
        let functions = self.functions.get().map_or(0, Functions::weight);
        let lines = self.lines.get().map_or(0, Lines::weight);
        let split = self.split.as_ref().map_or(0, Split::weight);
        self.weight.get() + split + functions + lines
    }
}
