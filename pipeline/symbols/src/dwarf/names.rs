//! The name of a function, which may stand at another entry than its code.

use std::sync::Arc;

use gimli::{AttributeValue, DebugInfoOffset, Dwarf, UnitOffset};

use super::index::Index;
use super::unit::Units;
use crate::view::View;

/// From an inlined call over its origin and its declaration to where it is declared takes three.
const MAX_STEPS: usize = 16;

#[derive(Clone, Debug, Default)]
pub struct Name {
    /// As the linker sees it, where that is written; empty where there is none.
    pub text: Arc<str>,
    /// Where the function is declared.
    pub line: u32,
}

/// Of the function of this entry in that unit.
pub fn name(
    dwarf: &Dwarf<View>,
    index: &Index,
    units: &mut Units,
    unit: u32,
    entry: usize,
) -> Name {
    let mut found = Name::default();
    let mut at = Some((unit, entry));
    for _ in 0..MAX_STEPS {
        let Some((number, entry)) = at.take() else {
            break;
        };
        let Some(unit) = units.get(dwarf, index, number) else {
            break;
        };
        let unit = &unit.unit;
        let Ok(mut entries) = unit.entries_raw(Some(UnitOffset(entry))) else {
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
                gimli::DW_AT_decl_line if found.line == 0 => {
                    let line = attribute
                        .udata_value()
                        .and_then(|it| u32::try_from(it).ok());
                    found.line = line.unwrap_or(0);
                }
                gimli::DW_AT_abstract_origin | gimli::DW_AT_specification => {
                    at = match attribute.value() {
                        AttributeValue::UnitRef(UnitOffset(entry)) => Some((number, entry)),
                        AttributeValue::DebugInfoRef(DebugInfoOffset(offset)) => {
                            index.unit_with(offset)
                        }
                        _ => None,
                    };
                }
                _ => {}
            }
        }
        if let Some(linkage) = linkage {
            found.text = linkage;
            break;
        }
        if found.text.is_empty() {
            found.text = plain.unwrap_or_default();
        }
    }
    found
}
