//! Maps addresses to units.

use gimli::{
    AttributeValue, DebugAddrBase, DebugInfoOffset, DebugRngListsBase, Dwarf, Section as _,
    UnitHeader,
};

use super::ranges::{Bounds, Ranges};
use crate::view::View;

/// A browser has about fifty thousand.
const MAX_UNITS: usize = 1 << 20;
/// In all units together.
const MAX_RANGES: usize = 2 << 20;

/// Reads allowed for a unit's abbreviations and line header, because they stay in memory. The largest seen need a
/// hundred thousand.
pub const HEADER_READS: u64 = 2_000_000;

pub struct Index {
    /// The start of each unit in `.debug_info`, ascending.
    units: Vec<usize>,
    ranges: Ranges,
}

impl Index {
    /// Reads all units up to the first damaged header.
    pub fn read(dwarf: &Dwarf<View>) -> Self {
        let mut units = Vec::new();
        let mut ranges = Vec::new();
        let mut headers = dwarf.units();
        while let Ok(Some(header)) = headers.next() {
            let Some(offset) = header.debug_info_offset() else {
                continue;
            };
            if units.len() >= MAX_UNITS {
                break;
            }
            let number = units.len() as u32;
            units.push(offset.0);
            let fuel = dwarf.debug_info.reader().fuel();
            fuel.limited(HEADER_READS, || {
                add_ranges(dwarf, header, |begin, end| {
                    if ranges.len() < MAX_RANGES {
                        ranges.push((begin, end, number));
                    }
                });
            });
        }
        Self {
            units,
            ranges: Ranges::new(ranges),
        }
    }

    pub fn at(&self, address: u64) -> impl Iterator<Item = u32> {
        self.ranges.at(address)
    }

    pub fn offset(&self, unit: u32) -> Option<DebugInfoOffset<usize>> {
        self.units
            .get(unit as usize)
            .map(|&offset| DebugInfoOffset(offset))
    }

    /// The unit that contains this offset of `.debug_info`, and the offset within it.
    pub fn unit_with(&self, offset: usize) -> Option<(u32, usize)> {
        let after = self.units.partition_point(|&start| start <= offset);
        let number = after.checked_sub(1)?;
        let start = self.units.get(number)?;
        Some((number as u32, offset - start))
    }

    pub fn weight(&self) -> usize {
        self.ranges.weight() + self.units.capacity() * size_of::<usize>()
    }
}

/// Reads the root entry only: a complete unit would include the long header of its line program.
fn add_ranges(dwarf: &Dwarf<View>, header: UnitHeader<View>, add: impl FnMut(u64, u64)) {
    let Ok(abbreviations) = dwarf.abbreviations(&header) else {
        return;
    };
    let Ok(mut entries) = header.entries_raw(&abbreviations, None) else {
        return;
    };
    let Ok(Some(root)) = entries.read_abbreviation() else {
        return;
    };
    let mut bounds = Bounds::default();
    let mut addresses = DebugAddrBase(0);
    let mut lists =
        DebugRngListsBase::default_for_encoding_and_file(header.encoding(), dwarf.file_type);
    for &specification in root.attributes() {
        let Ok(attribute) = entries.read_attribute(specification) else {
            return;
        };
        match attribute.value() {
            AttributeValue::DebugAddrBase(base) => addresses = base,
            AttributeValue::DebugRngListsBase(base) => lists = base,
            value => bounds.note(attribute.name(), value),
        }
    }
    if bounds.low.is_none() && bounds.ranges.is_none() {
        return;
    }
    let mut unit = gimli::Unit {
        abbreviations,
        name: None,
        comp_dir: None,
        low_pc: 0,
        str_offsets_base: gimli::DebugStrOffsetsBase(0),
        addr_base: addresses,
        loclists_base: gimli::DebugLocListsBase(0),
        rnglists_base: lists,
        line_program: None,
        dwo_id: None,
        header,
    };
    let low = bounds.low.clone();
    let low = low.and_then(|low| dwarf.attr_address(&unit, low).ok().flatten());
    unit.low_pc = low.unwrap_or(0);
    bounds.each(dwarf, &unit, add);
}
