//! Reads the name of a function, which may be in another entry than its code, and in another file.

use std::rc::Rc;
use std::sync::Arc;

use gimli::{AttributeValue, DebugInfoOffset, Dwarf, UnitOffset};

use super::common::Common;
use super::index::Index;
use super::name::Name;
use super::unit::{Unit, Units};
use crate::view::View;

/// From an inlined call via its origin and declaration to the name takes three steps.
const MAX_STEPS: usize = 16;

/// What entries can refer to.
pub struct Files<'a> {
    pub dwarf: &'a Dwarf<View>,
    pub index: &'a Index,
    pub units: &'a mut Units,
    pub common: Option<&'a mut Common>,
}

/// The position of an entry.
#[derive(Clone, Copy)]
struct DieRef {
    is_common: bool,
    unit: u32,
    entry: usize,
}

impl Files<'_> {
    /// The name of the function with this entry.
    pub fn name(&mut self, unit: u32, entry: usize) -> Name {
        let mut name = Name::default();
        let mut at = Some(DieRef {
            is_common: false,
            unit,
            entry,
        });
        for _ in 0..MAX_STEPS {
            let Some(place) = at.take() else {
                break;
            };
            let Some(held) = self.unit(place) else {
                break;
            };
            let (dwarf, unit) = held.code(self.dwarf_of(place));
            let Ok(mut entries) = unit.entries_raw(Some(UnitOffset(place.entry))) else {
                break;
            };
            let Ok(Some(abbreviation)) = entries.read_abbreviation() else {
                break;
            };
            let text = |value| {
                let text = dwarf.attr_string(unit, value).ok()?.text()?;
                Some(Arc::<str>::from(text))
            };
            let mut linkage = None;
            let mut plain = None;
            for &specification in abbreviation.attributes() {
                let Ok(attribute) = entries.read_attribute(specification) else {
                    break;
                };
                match attribute.name() {
                    gimli::DW_AT_linkage_name | gimli::DW_AT_MIPS_linkage_name => {
                        linkage = text(attribute.value());
                    }
                    gimli::DW_AT_name => plain = text(attribute.value()),
                    gimli::DW_AT_decl_line if name.line == 0 => {
                        let line = attribute
                            .udata_value()
                            .and_then(|it| u32::try_from(it).ok());
                        name.line = line.unwrap_or(0);
                    }
                    gimli::DW_AT_abstract_origin | gimli::DW_AT_specification => {
                        at = self.referred(place, &held, attribute.value());
                    }
                    _ => {}
                }
            }
            if let Some(linkage) = linkage {
                name.text = linkage;
                break;
            }
            if name.text.is_empty() {
                name.text = plain.unwrap_or_default();
            }
        }
        name
    }

    fn unit(&mut self, place: DieRef) -> Option<Rc<Unit>> {
        match place.is_common {
            true => self.common.as_mut()?.unit(place.unit),
            false => self.units.get(self.dwarf, self.index, place.unit),
        }
    }

    fn dwarf_of(&self, place: DieRef) -> &Dwarf<View> {
        match &self.common {
            Some(common) if place.is_common => &common.dwarf,
            _ => self.dwarf,
        }
    }

    /// The entry that an attribute value refers to.
    fn referred(&self, from: DieRef, held: &Unit, value: AttributeValue<View>) -> Option<DieRef> {
        let common = self.common.as_deref();
        match value {
            AttributeValue::UnitRef(UnitOffset(entry)) => Some(DieRef { entry, ..from }),
            AttributeValue::DebugInfoRef(offset) if held.is_split() => {
                let (_, unit) = held.code(self.dwarf);
                let UnitOffset(entry) = offset.to_unit_offset(&unit.header)?;
                Some(DieRef { entry, ..from })
            }
            AttributeValue::DebugInfoRef(DebugInfoOffset(offset)) if !from.is_common => {
                let (unit, entry) = self.index.unit_with(offset)?;
                Some(DieRef {
                    unit,
                    entry,
                    ..from
                })
            }
            AttributeValue::DebugInfoRef(offset) | AttributeValue::DebugInfoRefSup(offset) => {
                let (unit, entry) = common?.unit_with(offset)?;
                Some(DieRef {
                    is_common: true,
                    unit,
                    entry,
                })
            }
            _ => None,
        }
    }
}
