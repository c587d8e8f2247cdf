//! DWARF: the functions, inlined ones included, and the line of an address.
//!
//! Units are found by the ranges of their roots. Of a unit that is asked for, functions and lines
//! become sorted tables; of a function that is asked for, its scopes. Names are read last. Nothing
//! here calls itself: nesting as deep as a file likes costs no stack.

mod common;
mod functions;
mod index;
mod lines;
mod names;
mod ranges;
mod scopes;
mod sections;
mod split;
mod unit;

use std::rc::Rc;

use gimli::{Dwarf, SectionId};

use self::common::Common;
use self::index::Index;
use self::names::{Files, Name};
use self::sections::Sections;
use self::split::SplitFiles;
use self::unit::{Unit, Units};
use profcol_elf::ElfError;

use crate::Frame;
use crate::companions::Companions;
use crate::image::Image;
use crate::view::{Fuel, View};

/// Reads that the index of all units may take: those of a browser take some ten million.
const INDEX_READS: u64 = 400_000_000;
/// Reads that may be saved up for one address: a unit of half a gigabyte, as link-time optimisation
/// makes them.
const MAX_READS: u64 = 400_000_000;
/// And those that each address is good for: a usual unit, some milliseconds.
const READS: u64 = 4_000_000;
/// Frames at one address.
const MAX_FRAMES: usize = 256;

pub struct DebugInfo {
    dwarf: Dwarf<View>,
    sections: Sections,
    fuel: Fuel,
    index: Index,
    units: Units,
    common: Option<Common>,
    /// Reads that were saved up.
    credit: u64,
}

impl DebugInfo {
    /// `None` where there is none.
    pub fn read(image: &Image, companions: &Rc<dyn Companions>) -> Result<Option<Self>, ElfError> {
        let sections = Sections::read(image)?;
        if gimli::Reader::is_empty(&sections.view(SectionId::DebugInfo)) {
            return Ok(None);
        }
        let mut dwarf = sections.dwarf();
        image.fuel.fill(INDEX_READS);
        // What is shared is little, and what is damaged is done without.
        let common = Common::read(image, &**companions).ok().flatten();
        if let Some(common) = &common {
            dwarf.set_sup(common.strings());
        }
        image.fuel.fill(INDEX_READS);
        let index = Index::read(&dwarf);
        let debug = Self {
            dwarf,
            sections,
            fuel: image.fuel.clone(),
            index,
            units: Units::with_splits(SplitFiles::new(image, Rc::clone(companions))),
            common,
            credit: MAX_READS,
        };
        debug.forget_blocks();
        Ok(Some(debug))
    }

    /// Adds the frames at an address, the innermost first; false where nothing is known of it.
    pub fn find(&mut self, address: u64, frames: &mut Vec<Frame>) -> bool {
        self.credit = MAX_READS.min(self.credit + READS);
        self.fuel.fill(self.credit);
        let is_found = self.look_up(address, frames);
        self.credit = self.fuel.left();
        if self.is_exhausted() {
            // Tables that are not complete would say that nothing is there.
            self.units.forget_all();
            if let Some(common) = &mut self.common {
                common.forget_all();
            }
        }
        is_found
    }

    fn look_up(&mut self, address: u64, frames: &mut Vec<Frame>) -> bool {
        let candidates: Vec<u32> = self.index.at(address).collect();
        let mut only_line = None;
        for number in candidates {
            let Some(unit) = self.units.get(&self.dwarf, &self.index, number) else {
                continue;
            };
            if self.find_in(number, &unit, address, frames) {
                return true;
            }
            only_line = only_line.or_else(|| unit.lines(&self.dwarf).find(address));
        }
        // Assembly has lines without functions.
        if let Some(line) = only_line {
            frames.push(Frame {
                file: line.file,
                line: line.line,
                column: line.column,
                ..Frame::default()
            });
            return true;
        }
        false
    }

    fn find_in(&mut self, number: u32, unit: &Unit, address: u64, frames: &mut Vec<Frame>) -> bool {
        let Some(function) = unit.functions(&self.dwarf).find(address) else {
            return false;
        };
        let scopes = unit.scopes(&self.dwarf, function);
        let lines = unit.lines(&self.dwarf);
        let mut place = lines.find(address).unwrap_or_default();
        for scope in scopes.at(address).take(MAX_FRAMES) {
            let name = self.name(number, unit, scope.entry);
            let file = std::mem::take(&mut place.file);
            frames.push(Frame {
                name: name.text,
                file,
                line: place.line,
                column: place.column,
                start_line: name.line,
            });
            place.file = lines.file(scope.call_file);
            place.line = scope.call_line;
            place.column = scope.call_column;
        }
        true
    }

    fn name(&mut self, number: u32, unit: &Unit, entry: usize) -> Name {
        if let Some(known) = unit.name(entry) {
            return known;
        }
        let mut files = Files {
            dwarf: &self.dwarf,
            index: &self.index,
            units: &mut self.units,
            common: self.common.as_mut(),
        };
        let name = files.name(number, entry);
        // What was given up would be taken for all there is.
        if !self.is_exhausted() {
            unit.note_name(entry, name.clone());
        }
        name
    }

    /// Whether so much had to be read for the last address that it was given up.
    pub fn is_exhausted(&self) -> bool {
        self.fuel.left() == 0
    }

    /// About how many bytes it holds.
    pub fn weight(&self) -> usize {
        let common = self.common.as_ref().map_or(0, Common::weight);
        self.sections.weight() + self.index.weight() + self.units.weight() + common
    }

    /// Gives up the unit that was not asked for the longest; false where there is none.
    pub fn forget_oldest(&mut self) -> bool {
        let common = self.common.as_mut();
        self.units.forget_oldest() || common.is_some_and(Common::forget_oldest)
    }

    pub fn forget_blocks(&self) {
        self.sections.forget_blocks();
        self.units.forget_blocks();
        if let Some(common) = &self.common {
            common.forget_blocks();
        }
    }
}
