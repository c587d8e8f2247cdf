//! DWARF: the functions, including inlined ones, and the line of an address.
//!
//! Units are found by the ranges of their root entries. The functions and lines of a unit are turned into sorted tables
//! on first use, the scopes of a function likewise. Names are read last. Nothing here recurses: deeply nested input
//! uses no stack.

mod common;
mod functions;
mod index;
mod lines;
mod name;
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
use self::name::Name;
use self::names::Files;
use self::sections::Sections;
use self::split::SplitFiles;
use self::unit::{Unit, Units};
use profcol_elf::ElfError;

use crate::companions::Companions;
use crate::frame::Frame;
use crate::image::Image;
use crate::view::{Fuel, View};

/// Reads allowed for the index of all units: a browser needs about ten million.
const INDEX_READS: u64 = 400_000_000;
/// Maximum credit of reads for one address: a unit of half a gigabyte, as link-time optimization produces.
const MAX_READS: u64 = 400_000_000;
/// Reads that each address adds to the credit: a typical unit, a few milliseconds.
const READS: u64 = 4_000_000;
/// Frames per address.
const MAX_FRAMES: usize = 256;

pub struct DebugInfo {
    dwarf: Dwarf<View>,
    sections: Sections,
    fuel: Fuel,
    index: Index,
    units: Units,
    common: Option<Common>,
    /// Accumulated reads.
    credit: u64,
}

impl DebugInfo {
    /// `None` if the file has none.
    pub fn read(image: &Image, companions: &Rc<dyn Companions>) -> Result<Option<Self>, ElfError> {
        let sections = Sections::read(image)?;
        if gimli::Reader::is_empty(&sections.view(SectionId::DebugInfo)) {
            return Ok(None);
        }
        let mut dwarf = sections.dwarf();
        image.fuel.fill(INDEX_READS);
        // The common part is small; if it is damaged, continue without it.
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

    /// Adds the frames at an address, innermost first; returns `false` if there are none.
    pub fn find(&mut self, address: u64, frames: &mut Vec<Frame>) -> bool {
        self.credit = MAX_READS.min(self.credit + READS);
        self.fuel.fill(self.credit);
        let is_found = self.look_up(address, frames);
        self.credit = self.fuel.left();
        if self.is_exhausted() {
            // Incomplete tables would hide functions.
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
        // Assembly has lines but no functions.
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
        if let Some(name) = unit.name(entry) {
            return name;
        }
        let mut files = Files {
            dwarf: &self.dwarf,
            index: &self.index,
            units: &mut self.units,
            common: self.common.as_mut(),
        };
        let name = files.name(number, entry);
        // Do not cache an incomplete name.
        if !self.is_exhausted() {
            unit.note_name(entry, name.clone());
        }
        name
    }

    /// Whether the last lookup was aborted because it needed too many reads.
    pub fn is_exhausted(&self) -> bool {
        self.fuel.left() == 0
    }

    /// Estimated memory use.
    pub fn weight(&self) -> usize {
        let common = self.common.as_ref().map_or(0, Common::weight);
        self.sections.weight() + self.index.weight() + self.units.weight() + common
    }

    /// Evicts the least recently used unit; returns `false` if there is none.
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
