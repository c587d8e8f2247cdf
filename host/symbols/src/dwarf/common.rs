//! The DWARF shared by several files, which `dwz` moved to a file of its own.

use std::rc::Rc;

use gimli::{DebugInfoOffset, Dwarf};
use profcol_debuginfo::CommonLink;
use profcol_elf::ElfError;

use super::index::Index;
use super::sections::Sections;
use super::unit::{Unit, Units};
use crate::companions::Companions;
use crate::image::Image;
use crate::view::View;

/// The units of a common file (`dwz`), which entries of the other file refer to.
pub struct Common {
    pub dwarf: Dwarf<View>,
    sections: Sections,
    index: Index,
    units: Units,
}

impl Common {
    /// `None` if there is none, or it was not found.
    pub fn read(image: &Image, companions: &dyn Companions) -> Result<Option<Self>, ElfError> {
        let Some(link) = CommonLink::of(image.source(), &image.elf) else {
            return Ok(None);
        };
        let Some(source) = companions.common(&link) else {
            return Ok(None);
        };
        let image = Image::sharing(image.fuel.clone(), source, image.unpacked_left())?;
        let sections = Sections::read(&image)?;
        let dwarf = sections.dwarf();
        Ok(Some(Self {
            index: Index::read(&dwarf),
            units: Units::default(),
            dwarf,
            sections,
        }))
    }

    /// A second instance for attribute values that refer to its strings.
    pub fn strings(&self) -> Dwarf<View> {
        self.sections.dwarf()
    }

    pub fn unit(&mut self, number: u32) -> Option<Rc<Unit>> {
        self.units.get(&self.dwarf, &self.index, number)
    }

    /// The unit that contains this offset, and the offset within it.
    pub fn unit_with(&self, offset: DebugInfoOffset<usize>) -> Option<(u32, usize)> {
        self.index.unit_with(offset.0)
    }

    pub fn weight(&self) -> usize {
        self.sections.weight() + self.index.weight() + self.units.weight()
    }

    pub fn forget_all(&mut self) {
        self.units.forget_all();
    }

    pub fn forget_oldest(&mut self) -> bool {
        self.units.forget_oldest()
    }

    pub fn forget_blocks(&self) {
        self.sections.forget_blocks();
    }
}
