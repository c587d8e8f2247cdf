//! The address ranges of a unit's functions.

use gimli::{Dwarf, Unit};

use super::ranges::Bounds;
use crate::search_hint::SearchHint;
use crate::view::View;

/// Per unit; whole programs with link-time optimization have a few hundred thousand.
const MAX_FUNCTIONS: usize = 2 << 20;

/// Ranges sorted by address, each with the offset of its function's entry in the unit.
#[derive(Default)]
pub struct Functions {
    rows: Vec<(u64, u64, usize)>,
    hint: SearchHint,
}

impl Functions {
    /// Reads as much of the unit as possible.
    pub fn read(dwarf: &Dwarf<View>, unit: &Unit<View>) -> Self {
        let mut functions = Self::default();
        let _damage = functions.gather(dwarf, unit);
        functions.rows.sort_unstable();
        functions.rows.shrink_to_fit();
        functions
    }

    fn gather(&mut self, dwarf: &Dwarf<View>, unit: &Unit<View>) -> gimli::Result<()> {
        let mut entries = unit.entries_raw(None)?;
        while !entries.is_empty() && self.rows.len() < MAX_FUNCTIONS {
            let offset = entries.next_offset();
            let Some(abbreviation) = entries.read_abbreviation()? else {
                continue;
            };
            if abbreviation.tag() != gimli::DW_TAG_subprogram {
                entries.skip_attributes(abbreviation.attributes())?;
                continue;
            }
            let mut bounds = Bounds::default();
            for &specification in abbreviation.attributes() {
                let attribute = entries.read_attribute(specification)?;
                bounds.note(attribute.name(), attribute.value());
            }
            bounds.each(dwarf, unit, |begin, end| {
                self.rows.push((begin, end, offset.0));
            });
        }
        Ok(())
    }

    /// The entry of the function that contains this address.
    pub fn find(&self, address: u64) -> Option<usize> {
        let after = self
            .hint
            .partition_point(&self.rows, |(begin, ..)| *begin <= address);
        let before = self.rows.get(..after)?.iter().rev();
        // Functions do not overlap, except for identical functions that the linker folded.
        let mut nearest = before.take(8);
        let range = nearest.find(|(_, end, _)| *end > address);
        range.map(|&(_, _, entry)| entry)
    }

    pub fn weight(&self) -> usize {
        self.rows.capacity() * size_of::<(u64, u64, usize)>()
    }
}
