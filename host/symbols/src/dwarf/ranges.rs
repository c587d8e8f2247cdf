//! The address ranges of entries.

use gimli::{AttributeValue, Dwarf, Unit};

use crate::search_hint::SearchHint;
use crate::view::View;

/// Ranges per entry.
const MAX_RANGES: usize = 1 << 16;

/// The attributes that define an entry's ranges.
#[derive(Default)]
pub struct Bounds {
    pub low: Option<AttributeValue<View>>,
    pub high: Option<AttributeValue<View>>,
    pub ranges: Option<AttributeValue<View>>,
}

impl Bounds {
    pub fn note(&mut self, name: gimli::DwAt, value: AttributeValue<View>) {
        match name {
            gimli::DW_AT_low_pc => self.low = Some(value),
            gimli::DW_AT_high_pc => self.high = Some(value),
            gimli::DW_AT_ranges => self.ranges = Some(value),
            _ => {}
        }
    }

    /// Calls `add` for each range, up to the first damaged one.
    pub fn each(self, dwarf: &Dwarf<View>, unit: &Unit<View>, mut add: impl FnMut(u64, u64)) {
        let mut add = |begin: u64, end: u64| {
            // Linkers leave dropped code at address 0.
            if begin != 0 && begin < end && !unit.header.is_tombstone_address(begin) {
                add(begin, end);
            }
        };
        if let Some(ranges) = self.ranges {
            let Ok(Some(mut ranges)) = dwarf.attr_ranges(unit, ranges) else {
                return;
            };
            for _ in 0..MAX_RANGES {
                let Ok(Some(range)) = ranges.next() else {
                    return;
                };
                add(range.begin, range.end);
            }
            return;
        }
        let low = self.low.and_then(|low| dwarf.attr_address(unit, low).ok()?);
        let (Some(low), Some(high)) = (low, self.high) else {
            return;
        };
        let end = match high.udata_value() {
            Some(size) => low.checked_add(size),
            None => dwarf.attr_address(unit, high).ok().flatten(),
        };
        add(low, end.unwrap_or(low));
    }
}

/// Ranges sorted by address; they may be nested.
pub struct Ranges {
    rows: Vec<Range>,
    hint: SearchHint,
}

struct Range {
    begin: u64,
    end: u64,
    /// The highest end of all rows up to this one.
    furthest: u64,
    unit: u32,
}

impl Ranges {
    pub fn new(mut ranges: Vec<(u64, u64, u32)>) -> Self {
        ranges.sort_unstable();
        ranges.dedup();
        let mut furthest = 0;
        let rows = ranges.into_iter().map(|(begin, end, unit)| {
            furthest = end.max(furthest);
            Range {
                begin,
                end,
                furthest,
                unit,
            }
        });
        Self {
            rows: rows.collect(),
            hint: SearchHint::default(),
        }
    }

    /// The units that contain this address, the one with the highest start first.
    pub fn at(&self, address: u64) -> impl Iterator<Item = u32> {
        let after = self
            .hint
            .partition_point(&self.rows, |row| row.begin <= address);
        let before = self.rows.get(..after).unwrap_or_default().iter().rev();
        before
            .take_while(move |row| row.furthest > address)
            .take(MAX_RANGES)
            .filter(move |row| row.end > address)
            .map(|row| row.unit)
    }

    pub fn weight(&self) -> usize {
        self.rows.capacity() * size_of::<Range>()
    }
}
