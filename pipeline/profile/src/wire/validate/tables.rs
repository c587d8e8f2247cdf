//! The rows of tables.

use super::{Walk, id_length, utf8};
use crate::Line;
use crate::dictionary::{Function, Location, Mapping};
use crate::proto::WireError;
use crate::wire::invalid::{Fault, Invalid, Reason, WithPath};
use crate::wire::rows;
use crate::wire::tables::Tables;
use crate::wire::tags::dictionary;
use crate::wire::value::{AnyValue, any_value};

impl Walk<'_> {
    pub(super) fn dictionary(&mut self, tables: &Tables<'_>) -> Result<(), Invalid> {
        let rows = tables.rows(dictionary::STRINGS);
        if tables.strings_are_text {
            // Counting has checked UTF-8; only row 0 is left.
            self.rows(rows.take(1), "string_table", Self::string_row)?;
        } else {
            self.rows(rows, "string_table", Self::string_row)?;
        }
        let rows = tables.rows(dictionary::ATTRIBUTES);
        self.rows(rows, "attribute_table", Self::attribute_row)?;
        self.texts.unify(&mut self.keys);
        let rows = tables.rows(dictionary::FUNCTIONS);
        self.rows(rows, "function_table", Self::function_row)?;
        let rows = tables.rows(dictionary::LINKS);
        self.rows(rows, "link_table", Self::link_row)?;
        let rows = tables.rows(dictionary::MAPPINGS);
        self.rows(rows, "mapping_table", Self::mapping_row)?;
        let rows = tables.rows(dictionary::LOCATIONS);
        self.rows(rows, "location_table", Self::location_row)?;
        let rows = tables.rows(dictionary::STACKS);
        self.rows(rows, "stack_table", Self::stack_row)
    }

    /// Checks all rows of a table. Not inlined, so that each table gets its own loop.
    #[inline(never)]
    fn rows<'a>(
        &mut self,
        rows: impl Iterator<Item = Result<&'a [u8], WireError>>,
        table: &'static str,
        check: impl Fn(&mut Self, &'a [u8], usize) -> Result<(), Invalid>,
    ) -> Result<(), Invalid> {
        for (row, message) in rows.enumerate() {
            if let Err(invalid) = check(self, message?, row).item(table, row) {
                let why = self.note_fault(invalid)?;
                self.mark_bad(table, row, why);
            }
        }
        Ok(())
    }

    #[cold]
    fn mark_bad(&mut self, table: &'static str, row: usize, why: Reason) {
        match table {
            "string_table" => self.strings.mark_bad(row, why),
            "attribute_table" => self.attributes.mark_bad(row, why),
            "function_table" => self.functions.mark_bad(row, why),
            "link_table" => self.links.mark_bad(row, why),
            "mapping_table" => self.mappings.mark_bad(row, why),
            "location_table" => self.locations.mark_bad(row, why),
            _ => self.stacks.mark_bad(row, why),
        }
    }

    fn string_row(&mut self, text: &[u8], row: usize) -> Result<(), Invalid> {
        if row == 0 && !text.is_empty() {
            return Err(Fault::NotZero.into());
        }
        Ok(utf8(text)?)
    }

    fn link_row(&mut self, message: &[u8], row: usize) -> Result<(), Invalid> {
        let link = rows::link(message)?;
        id_length(link.trace_id, 16).field("trace_id")?;
        id_length(link.span_id, 8).field("span_id")?;
        let mut ids = link.trace_id.iter().chain(link.span_id);
        if row == 0 && ids.any(|&byte| byte != 0) {
            return Err(Fault::NotZero.into());
        }
        Ok(())
    }

    fn attribute_row(&mut self, message: &[u8], row: usize) -> Result<(), Invalid> {
        let attribute = rows::attribute(message)?;
        self.keys.push(attribute.key);
        let mut empty = true;
        if let Some(value) = attribute.value {
            empty = matches!(any_value(value).field("value")?, AnyValue::Empty);
            self.value(value, 0).field("value")?;
        }
        if row == 0 && !(empty && !attribute.key.is_set() && !attribute.unit.is_set()) {
            return Err(Fault::NotZero.into());
        }
        self.strings.check(attribute.key).field("key_strindex")?;
        self.strings.check(attribute.unit).field("unit_strindex")?;
        Ok(())
    }

    #[inline(always)]
    fn function_row(&mut self, message: &[u8], row: usize) -> Result<(), Invalid> {
        let function = rows::function(message)?;
        if row == 0 && function != Function::default() {
            return Err(Fault::NotZero.into());
        }
        let named = function.name.get() | function.system_name.get() | function.filename.get();
        if row != 0 && named == 0 {
            return Err(Fault::Nameless.into());
        }
        self.strings.check(function.name).field("name_strindex")?;
        self.strings
            .check(function.system_name)
            .field("system_name_strindex")?;
        self.strings
            .check(function.filename)
            .field("filename_strindex")
    }

    fn mapping_row(&mut self, message: &[u8], row: usize) -> Result<(), Invalid> {
        let mapping = rows::mapping(message, &mut self.lists)?;
        if row == 0 && (mapping != Mapping::default() || !self.lists.attributes.is_empty()) {
            return Err(Fault::NotZero.into());
        }
        let (start, limit) = (mapping.memory_start, mapping.memory_limit);
        if start >= limit && (start, limit) != (0, 0) {
            return Err(Fault::EmptyMapping { start, limit }.into());
        }
        self.strings
            .check(mapping.filename)
            .field("filename_strindex")?;
        self.attribute_list()
    }

    #[inline(always)]
    fn location_row(&mut self, message: &[u8], row: usize) -> Result<(), Invalid> {
        let location = rows::location(message, &mut self.lists)?;
        if row == 0 {
            let empty = self.lists.lines.is_empty() && self.lists.attributes.is_empty();
            if location != Location::default() || !empty {
                return Err(Fault::NotZero.into());
            }
        }
        self.mappings
            .check(location.mapping)
            .field("mapping_index")?;
        for (position, line) in self.lists.lines.iter().enumerate() {
            self.line(line).item("lines", position)?;
        }
        self.attribute_list()
    }

    #[inline(always)]
    fn line(&self, line: &Line) -> Result<(), Invalid> {
        self.functions
            .check(line.function)
            .field("function_index")?;
        if line.line < 0 {
            return Err(Fault::NegativeLine { line: line.line }).field("line");
        }
        Ok(())
    }

    #[inline(always)]
    fn stack_row(&mut self, message: &[u8], row: usize) -> Result<(), Invalid> {
        rows::stack(message, &mut self.lists)?;
        if row == 0 && !self.lists.locations.is_empty() {
            return Err(Fault::NotZero.into());
        }
        self.locations
            .check_list(&self.lists.locations, "location_indices")
    }
}
