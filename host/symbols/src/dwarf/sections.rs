//! The DWARF sections of a file.

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
        Self::named(image, REQUIRED, |id| Some(id.name()))
    }

    /// The sections of a `.dwo` file, except for the one with its units.
    pub fn read_split(image: &Image) -> Result<Self, ElfError> {
        Self::named(image, REQUIRED_SPLIT, SectionId::dwo_name)
    }

    /// The unit sections of a `.dwo` file, most likely one first: compilers write one per type before it.
    pub fn units_of_split(image: &Image) -> impl Iterator<Item = &SectionHeader> {
        let name = SectionId::DebugInfo.dwo_name().unwrap_or_default();
        let sections = image.elf.sections.iter().rev();
        sections.filter(move |it| has_data(it) && image.elf.name(it) == name.as_bytes())
    }

    pub fn set(&mut self, id: SectionId, section: Rc<Section>) {
        self.held.retain(|(it, _)| *it != id);
        self.held.push((id, section));
    }

    /// The sections of a package.
    pub fn read_package(image: &Image) -> Result<Self, ElfError> {
        let required = [REQUIRED_SPLIT, REQUIRED_PACKAGE].concat();
        Self::named(image, &required, SectionId::dwo_name)
    }

    fn named(
        image: &Image,
        required: &[SectionId],
        name: impl Fn(SectionId) -> Option<&'static str>,
    ) -> Result<Self, ElfError> {
        let mut held = Vec::new();
        for &id in required {
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

    /// Empty if the section is not needed or missing.
    pub fn view(&self, id: SectionId) -> View {
        let section = self.held.iter().find(|(it, _)| *it == id);
        section.map_or(&self.none, |(_, section)| section).view()
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

const REQUIRED: &[SectionId] = &[
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
const REQUIRED_SPLIT: &[SectionId] = &[
    SectionId::DebugAbbrev,
    SectionId::DebugLine,
    SectionId::DebugRngLists,
    SectionId::DebugStr,
    SectionId::DebugStrOffsets,
];

/// The index of a package is only valid if all sections that it covers are present.
const REQUIRED_PACKAGE: &[SectionId] = &[
    SectionId::DebugInfo,
    SectionId::DebugCuIndex,
    SectionId::DebugLoc,
    SectionId::DebugLocLists,
    SectionId::DebugMacinfo,
    SectionId::DebugMacro,
];
