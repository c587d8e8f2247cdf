//! The units that were asked for last, with what was made of them.

use std::cell::{Cell, OnceCell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;

use gimli::{Dwarf, Section as _};

use super::functions::Functions;
use super::index::Index;
use super::lines::Lines;
use super::scopes::Scopes;
use crate::view::View;

/// What an abbreviation, which is most of what a unit holds, has in memory for each byte in the file.
const BYTES_PER_READ: u64 = 12;

/// Reads that the abbreviations of a unit and the header of its lines may take: they become memory.
/// The longest seen take a hundred thousand.
pub const HEADER_READS: u64 = 2_000_000;

#[derive(Default)]
pub struct Units {
    held: HashMap<u32, Rc<Unit>>,
    clock: u64,
}

pub struct Unit {
    pub unit: gimli::Unit<View>,
    functions: OnceCell<Functions>,
    lines: OnceCell<Lines>,
    scopes: RefCell<HashMap<usize, Rc<Scopes>>>,
    /// Without its tables.
    weight: usize,
    asked: Cell<u64>,
}

impl Units {
    pub fn get(&mut self, dwarf: &Dwarf<View>, index: &Index, number: u32) -> Option<Rc<Unit>> {
        self.clock += 1;
        if let Some(unit) = self.held.get(&number) {
            unit.asked.set(self.clock);
            return Some(Rc::clone(unit));
        }
        let fuel = dwarf.debug_info.reader().fuel();
        let before = fuel.left();
        let unit = fuel.limited(HEADER_READS, || {
            let header = dwarf.unit_header(index.offset(number)?).ok()?;
            dwarf.unit(header).ok()
        })?;
        let reads = before.saturating_sub(fuel.left());
        let unit = Rc::new(Unit {
            unit,
            functions: OnceCell::new(),
            lines: OnceCell::new(),
            scopes: RefCell::default(),
            weight: size_of::<Unit>() + (reads * BYTES_PER_READ) as usize,
            asked: Cell::new(self.clock),
        });
        self.held.insert(number, Rc::clone(&unit));
        Some(unit)
    }

    pub fn weight(&self) -> usize {
        self.held.values().map(|unit| unit.weight()).sum()
    }

    pub fn forget_all(&mut self) {
        self.held.clear();
    }

    pub fn forget_oldest(&mut self) -> bool {
        let oldest = self.held.iter().min_by_key(|(_, unit)| unit.asked.get());
        let Some(number) = oldest.map(|(&number, _)| number) else {
            return false;
        };
        self.held.remove(&number);
        true
    }
}

impl Unit {
    pub fn functions(&self, dwarf: &Dwarf<View>) -> &Functions {
        self.functions
            .get_or_init(|| Functions::read(dwarf, &self.unit))
    }

    pub fn lines(&self, dwarf: &Dwarf<View>) -> &Lines {
        self.lines.get_or_init(|| Lines::read(dwarf, &self.unit))
    }

    pub fn scopes(&self, dwarf: &Dwarf<View>, function: usize) -> Rc<Scopes> {
        if let Some(known) = self.scopes.borrow().get(&function) {
            return Rc::clone(known);
        }
        let scopes = Rc::new(Scopes::read(dwarf, &self.unit, function));
        self.scopes
            .borrow_mut()
            .insert(function, Rc::clone(&scopes));
        scopes
    }

    fn weight(&self) -> usize {
        let functions = self.functions.get().map_or(0, Functions::weight);
        let lines = self.lines.get().map_or(0, Lines::weight);
        let scopes: usize = self.scopes.borrow().values().map(|it| it.weight()).sum();
        self.weight + functions + lines + scopes
    }
}
