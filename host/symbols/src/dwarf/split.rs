//! Units whose skeleton is in the executable: addresses and lines. The compiler wrote the rest to a `.dwo` file, which
//! may be packed into a `.dwp`.

use std::cell::OnceCell;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use std::rc::Rc;

use gimli::{AttributeValue, Dwarf, DwarfPackage, DwoId, Reader, SectionId, Unit};

use super::sections::Sections;
use crate::companions::Companions;
use crate::image::Image;
use crate::view::{Fuel, View};

/// Limit of open files; each worker holds those of several executables.
pub const MAX_OPEN: usize = 16;
/// Limit of units searched in a file, which also contains type units.
const MAX_UNITS: usize = 4096;

/// The rest of a unit.
pub struct Split {
    pub dwarf: Dwarf<View>,
    pub unit: Unit<View>,
    /// `None` if the sections are those of a package.
    sections: Option<Sections>,
}

impl Split {
    /// Memory beyond that of the unit.
    pub fn weight(&self) -> usize {
        self.sections.as_ref().map_or(0, Sections::weight)
    }

    /// Whether it holds an open file.
    pub fn is_file(&self) -> bool {
        self.sections.is_some()
    }

    pub fn forget_blocks(&self) {
        if let Some(sections) = &self.sections {
            sections.forget_blocks();
        }
    }
}

/// Finds the rest of units.
pub struct SplitFiles {
    fuel: Fuel,
    max_unpacked: u64,
    companions: Rc<dyn Companions>,
    package: OnceCell<Option<Package>>,
}

struct Package {
    package: DwarfPackage<View>,
    sections: Sections,
}

impl SplitFiles {
    /// `image` is the file with the skeletons.
    pub fn new(image: &Image, companions: Rc<dyn Companions>) -> Self {
        Self {
            fuel: image.fuel.clone(),
            max_unpacked: image.unpacked_left(),
            companions,
            package: OnceCell::new(),
        }
    }

    /// `None` if the unit is complete, or if the rest was not found.
    pub fn find(&self, dwarf: &Dwarf<View>, skeleton: &Unit<View>) -> Option<Split> {
        let id = skeleton.dwo_id?;
        let package = self.package.get_or_init(|| self.open_package());
        let packed = package.as_ref().and_then(|it| it.find(id, dwarf, skeleton));
        packed.or_else(|| self.open_file(id, dwarf, skeleton))
    }

    pub fn weight(&self) -> usize {
        let package = self.package.get().and_then(Option::as_ref);
        package.map_or(0, |package| package.sections.weight())
    }

    pub fn forget_blocks(&self) {
        if let Some(Some(package)) = self.package.get() {
            package.sections.forget_blocks();
        }
    }

    fn open_package(&self) -> Option<Package> {
        let source = self.companions.package()?;
        let image = Image::sharing(self.fuel.clone(), source, self.max_unpacked).ok()?;
        let sections = Sections::read_package(&image).ok()?;
        let load = |id| Ok::<_, gimli::Error>(sections.view(id));
        let none = sections.view(SectionId::DebugAddr);
        let package = DwarfPackage::load(load, none).ok()?;
        Some(Package { package, sections })
    }

    fn open_file(&self, id: DwoId, dwarf: &Dwarf<View>, skeleton: &Unit<View>) -> Option<Split> {
        let path = |value| {
            let text = dwarf.attr_string(skeleton, value).ok()?;
            Some(PathBuf::from(OsString::from_vec(
                text.to_slice().ok()?.into_owned(),
            )))
        };
        let name = path(dwo_name(skeleton)?)?;
        let compiled_in = skeleton.comp_dir.clone().map(AttributeValue::String);
        let compiled_in = compiled_in.and_then(path).unwrap_or_default();
        let source = self.companions.split(&compiled_in, &name)?;
        // Every open file gets an equal share.
        let most = self.max_unpacked / MAX_OPEN as u64;
        let image = Image::sharing(self.fuel.clone(), source, most).ok()?;
        let mut sections = Sections::read_split(&image).ok()?;
        for units in Sections::units_of_split(&image).take(MAX_UNITS) {
            sections.set(SectionId::DebugInfo, image.section(units).ok()?);
            let mut rest = sections.dwarf();
            rest.make_dwo(dwarf);
            if let Some(unit) = unit_with(id, &rest, skeleton) {
                return Some(Split {
                    dwarf: rest,
                    unit,
                    sections: Some(sections),
                });
            }
        }
        None
    }
}

impl Package {
    fn find(&self, id: DwoId, dwarf: &Dwarf<View>, skeleton: &Unit<View>) -> Option<Split> {
        let rest = self.package.find_cu(id, dwarf).ok()??;
        let unit = unit_with(id, &rest, skeleton)?;
        Some(Split {
            dwarf: rest,
            unit,
            sections: None,
        })
    }
}

/// The unit with this id, completed with the attributes of its skeleton.
fn unit_with(id: DwoId, rest: &Dwarf<View>, skeleton: &Unit<View>) -> Option<Unit<View>> {
    let mut headers = rest.units();
    for _ in 0..MAX_UNITS {
        let header = headers.next().ok()??;
        if let gimli::UnitType::SplitType { .. } | gimli::UnitType::Type { .. } = header.type_() {
            continue;
        }
        if let gimli::UnitType::SplitCompilation(unit_id) = header.type_()
            && unit_id != id
        {
            continue;
        }
        let mut unit = rest.unit(header).ok()?;
        if unit.dwo_id == Some(id) {
            unit.copy_relocated_attributes(skeleton);
            return Some(unit);
        }
    }
    None
}

fn dwo_name(skeleton: &Unit<View>) -> Option<AttributeValue<View>> {
    let mut entries = skeleton.entries_raw(None).ok()?;
    let root = entries.read_abbreviation().ok()??;
    for &specification in root.attributes() {
        let attribute = entries.read_attribute(specification).ok()?;
        if let gimli::DW_AT_dwo_name | gimli::DW_AT_GNU_dwo_name = attribute.name() {
            return Some(attribute.value());
        }
    }
    None
}
