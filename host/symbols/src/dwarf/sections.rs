//! The sections of a file that DWARF is read from.

use std::convert::Infallible;
use std::rc::Rc;

use gimli::{Dwarf, SectionId};
use profcol_elf::{ElfError, SectionHeader, has_data};

use crate::image::Image;
use crate::view::{Section, View};

pub struct Sections {
    held: Vec<(SectionId, Rc<Section>)>,
    none: Rc<Section>,
}

impl Sections {
    pub fn read(image: &Image) -> Result<Self, ElfError> {
        Self::named(image, WANTED, |id| Some(id.name()))
    }

    /// Those of a `.dwo` file, but for the one with its units.
    pub fn read_split(image: &Image) -> Result<Self, ElfError> {
        Self::named(image, WANTED_SPLIT, SectionId::dwo_name)
    }

    /// The sections with units of a `.dwo` file, in the order in which their owner is likely there:
    /// compilers write one for each type first.
    pub fn units_of_split(image: &Image) -> impl Iterator<Item = &SectionHeader> {
        let name = SectionId::DebugInfo.dwo_name().unwrap_or_default();
        let sections = image.elf.sections.iter().rev();
        sections.filter(move |it| has_data(it) && image.elf.name(it) == name.as_bytes())
    }

    pub fn set(&mut self, id: SectionId, section: Rc<Section>) {
        self.held.retain(|(it, _)| *it != id);
        self.held.push((id, section));
    }

    /// Those of a package of such files.
    pub fn read_package(image: &Image) -> Result<Self, ElfError> {
        let wanted = [WANTED_SPLIT, WANTED_PACKAGE].concat();
        Self::named(image, &wanted, SectionId::dwo_name)
    }

    fn named(
        image: &Image,
        wanted: &[SectionId],
        name: impl Fn(SectionId) -> Option<&'static str>,
    ) -> Result<Self, ElfError> {
        let mut held = Vec::new();
        for &id in wanted {
            if let Some(name) = name(id) {
                held.push((id, image.dwarf_section(name)?));
            }
        }
        let none = Section::in_memory(Vec::new(), image.fuel.clone());
        Ok(Self { held, none })
    }

    pub fn dwarf(&self) -> Dwarf<View> {
        let Ok(dwarf) = Dwarf::load(|id| Ok::<_, Infallible>(self.view(id)));
        dwarf
    }

    /// Empty where it is not wanted or not there.
    pub fn view(&self, id: SectionId) -> View {
        let found = self.held.iter().find(|(it, _)| *it == id);
        found.map_or(&self.none, |(_, section)| section).view()
    }

    pub fn weight(&self) -> usize {
        self.held.iter().map(|(_, section)| section.weight()).sum()
    }

    pub fn forget_blocks(&self) {
        for (_, section) in &self.held {
            section.forget_blocks();
        }
    }
}

const WANTED: &[SectionId] = &[
    SectionId::DebugInfo,
    SectionId::DebugAbbrev,
    SectionId::DebugAddr,
    SectionId::DebugLine,
    SectionId::DebugLineStr,
    SectionId::DebugRanges,
    SectionId::DebugRngLists,
    SectionId::DebugStr,
    SectionId::DebugStrOffsets,
];

/// Addresses and lines stay in the executable.
const WANTED_SPLIT: &[SectionId] = &[
    SectionId::DebugAbbrev,
    SectionId::DebugLine,
    SectionId::DebugRngLists,
    SectionId::DebugStr,
    SectionId::DebugStrOffsets,
];

/// A package has an index, which is right only if everything is there that it speaks of.
const WANTED_PACKAGE: &[SectionId] = &[
    SectionId::DebugInfo,
    SectionId::DebugCuIndex,
    SectionId::DebugLoc,
    SectionId::DebugLocLists,
    SectionId::DebugMacinfo,
    SectionId::DebugMacro,
];
