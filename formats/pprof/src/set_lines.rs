//! Sets the lines of locations that were added without any.

use super::build::{Builder, Id, LineRow, SampleRow, UnnamedLocation};
use super::translated_ids::TranslatedIds;
use profcol_profile::{Function, NamedLine};

impl Builder {
    /// Sets the lines of some locations without lines, innermost first. Rows that become equal are merged.
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
        // If rows were merged, ids have changed; otherwise they are all still valid.
        if self.locations.len() < old.len() {
            self.translated = TranslatedIds::default();
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

    /// `ids` holds the new id of each location.
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
