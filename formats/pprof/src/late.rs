//! Lines of locations that were added without.

use super::build::{Builder, Id, LineRow, SampleRow};
use super::translate::TranslatedIds;
use profcol_profile::{Function, NamedLine};

/// A location of a [`Builder`] that was added without lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct UnnamedLocation(pub(super) Id);

impl Builder {
    /// Sets the lines of some locations that have none, the innermost first. What is equal then is added up.
    pub fn set_lines<'a, L>(&mut self, mut lines_of: impl FnMut(UnnamedLocation) -> Option<L>)
    where
        L: IntoIterator<Item = NamedLine<'a>>,
    {
        let old = std::mem::take(&mut self.locations);
        let mut ids: Vec<Id> = Vec::with_capacity(old.len());
        for (id, row) in (1..).zip(old.rows()) {
            let mut row = *row;
            if self.lines.get(row.lines).is_empty()
                && let Some(named) = lines_of(UnnamedLocation(id))
            {
                let lines: Vec<LineRow> = named.into_iter().map(|line| self.line(line)).collect();
                row.lines = self.lines.intern(&lines);
            }
            ids.push(self.locations.intern(row) + 1);
        }
        // Rows that became equal are one now; without any, all have their numbers still.
        if self.locations.len() < old.len() {
            self.known = TranslatedIds::default();
            self.renumber_locations(&ids);
        }
    }

    fn line(&mut self, line: NamedLine<'_>) -> LineRow {
        let function = Function {
            name: self.strings.string(line.name),
            system_name: self.strings.string(line.system_name),
            filename: self.strings.string(line.filename),
            start_line: line.start_line,
        };
        LineRow {
            function: self.functions.intern(function) + 1,
            line: line.line,
            column: line.column,
        }
    }

    /// `ids` has the new number of each location.
    fn renumber_locations(&mut self, ids: &[Id]) {
        let old = std::mem::take(&mut self.stacks);
        let new_id = |id: &Id| ids.get(*id as usize - 1).copied().unwrap_or_default();
        let stacks: Vec<u32> = old
            .iter()
            .map(|stack| {
                let stack: Vec<Id> = stack.iter().map(new_id).collect();
                self.stacks.intern(&stack)
            })
            .collect();
        let samples = std::mem::take(&mut self.samples);
        let values = std::mem::take(&mut self.values);
        let types = self.header.sample_types.len().max(1);
        for (row, values) in samples.rows().iter().zip(values.chunks_exact(types)) {
            let stack = stacks.get(row.stack as usize).copied();
            let row = SampleRow {
                stack: stack.unwrap_or_default(),
                labels: row.labels,
            };
            self.add_values(row, values.iter().copied());
        }
    }
}
