//! Fast path for tables.

use super::cursor::{Cursor, highest};
use super::{ASCENDING, DESCENDING, distinct_keys};
use crate::StringIdx;
use crate::proto::tag;
use crate::wire::rows;
use crate::wire::tags::{
    any_value, attribute, dictionary as tables, function, key_value, line, list, location, mapping,
    stack,
};
use crate::wire::text::is_text;
use crate::wire::texts::{Mark, ROWS_PER_MARK, Texts};
use crate::wire::value::MAX_DEPTH;

/// Maximum number of lists waiting for the attribute table; beyond it the slow path takes over.
const MAX_PENDING_LISTS: usize = 1 << 16;

/// A valid dictionary.
pub(in crate::wire) struct FastPathState<'a> {
    pub rows: RowCounts,
    /// The key of each attribute table row; keys of equal text are equal.
    pub keys: Vec<StringIdx>,
    pub texts: Texts<'a>,
}

/// Number of rows of each table on the wire.
#[derive(Clone, Copy, Default)]
pub(in crate::wire) struct RowCounts([u32; tables::KNOWN as usize + 1]);

impl RowCounts {
    pub fn of(&self, table: u32) -> Option<u32> {
        self.0.get(tag::field(table) as usize).copied()
    }

    fn set(&mut self, table: u32, rows: u32) {
        self.0[tag::field(table) as usize] = rows;
    }
}

pub(in crate::wire) fn dictionary(message: &[u8]) -> Option<FastPathState<'_>> {
    // A row in the other order ends the first pass early.
    in_order::<ASCENDING>(message).or_else(|| in_order::<DESCENDING>(message))
}

fn in_order<const ORDER: bool>(message: &[u8]) -> Option<FastPathState<'_>> {
    let mut rows = RowCounts::default();
    let mut pass = Pass::<ORDER> {
        cursor: Cursor::new(message),
        highest: Highest::default(),
    };
    let mut lists = Lists::default();
    while let Some(table) = pass.cursor.peek() {
        let before = rows.of(table)?;
        let after;
        (pass, after) = match table {
            tables::MAPPINGS => pass.rows(table, before, &mut lists, Pass::mapping)?,
            tables::LOCATIONS => pass.rows(table, before, &mut lists, Pass::location)?,
            tables::FUNCTIONS => pass.rows(table, before, &mut lists, Pass::function)?,
            tables::LINKS => pass.links(before)?,
            tables::STRINGS => pass.strings(before, &mut lists)?,
            tables::ATTRIBUTES => pass.rows(table, before, &mut lists, Pass::attribute)?,
            tables::STACKS => pass.rows(table, before, &mut lists, Pass::stack)?,
            _ => return None,
        };
        rows.set(table, after);
    }
    let marks = std::mem::take(&mut lists.marks);
    let texts = Texts::new(message, marks, rows.of(tables::STRINGS)?);
    pass.finish(rows, lists, texts)
}

/// Passed by value and separate from heap state, so that table loops keep it in registers.
#[derive(Clone, Copy)]
struct Pass<'a, const ORDER: bool> {
    cursor: Cursor<'a>,
    highest: Highest,
}

#[derive(Default)]
struct Lists {
    keys: Vec<StringIdx>,
    /// Start and end of lists with more than one attribute: their keys may not be known yet.
    waiting: Vec<(usize, usize)>,
    /// Start positions of strings.
    marks: Vec<Mark>,
}

/// The highest referenced row of each table.
#[derive(Clone, Copy, Default)]
struct Highest {
    string: u32,
    function: u32,
    mapping: u32,
    location: u32,
    attribute: u32,
}

impl Lists {
    #[inline(always)]
    fn mark<const ORDER: bool>(&mut self, pass: &Pass<'_, ORDER>, row: u32) {
        let at = pass.cursor.at as u32;
        self.marks.push(Mark { row, at });
    }
}

impl<'a, const ORDER: bool> Pass<'a, ORDER> {
    fn finish(
        mut self,
        rows: RowCounts,
        mut lists: Lists,
        texts: Texts<'a>,
    ) -> Option<FastPathState<'a>> {
        texts.unify(&mut lists.keys);
        for (start, end) in lists.waiting {
            self.cursor.at = start;
            let attribute = distinct_keys(&mut self.cursor, end, &lists.keys)?;
            self.highest.attribute = self.highest.attribute.max(attribute.get());
        }
        // Row 0 exists even in an omitted table.
        let holds = |table, highest| rows.of(table).is_some_and(|rows| highest < rows.max(1));
        let complete = holds(tables::STRINGS, self.highest.string)
            && holds(tables::FUNCTIONS, self.highest.function)
            && holds(tables::MAPPINGS, self.highest.mapping)
            && holds(tables::LOCATIONS, self.highest.location)
            && holds(tables::ATTRIBUTES, self.highest.attribute);
        complete.then_some(FastPathState {
            rows,
            keys: lists.keys,
            texts,
        })
    }

    /// Reads consecutive rows of a table; returns their number plus `before`. Not inlined, so that each table gets its
    /// own loop.
    #[inline(never)]
    fn rows(
        self,
        table: u32,
        before: u32,
        lists: &mut Lists,
        row: impl Fn(&mut Self, &mut Lists) -> Option<()>,
    ) -> Option<(Self, u32)> {
        let mut pass = self;
        let mut rows = before;
        while pass.cursor.next_is(table) {
            let outer = pass.cursor.enter()?;
            if rows > 0 {
                row(&mut pass, lists)?;
            } else if table == tables::ATTRIBUTES {
                lists.keys.push(StringIdx::UNSET);
            }
            // Row 0 is empty.
            pass.cursor.leave(outer)?;
            rows += 1;
        }
        Some((pass, rows))
    }

    #[inline(never)]
    fn strings(mut self, before: u32, lists: &mut Lists) -> Option<(Self, u32)> {
        /// Rows checked together.
        const CHUNK_ROWS: u32 = ROWS_PER_MARK;

        let mut rows = before;
        if rows == 0 {
            lists.mark(&self, rows);
            self.cursor.next_is(tables::STRINGS).then_some(())?;
            self.cursor.slice()?.is_empty().then_some(())?;
            rows = 1;
        }
        loop {
            lists.mark(&self, rows);
            let start = self.cursor;
            let mut count = 0;
            while count < CHUNK_ROWS && self.cursor.next_is(tables::STRINGS) {
                self.cursor.at = self.cursor.end()?;
                count += 1;
            }
            // Includes tags and lengths, which are ASCII if short.
            if !start.slice_to(self.cursor.at)?.is_ascii() {
                let mut cursor = start;
                for _ in 0..count {
                    cursor.next_is(tables::STRINGS);
                    is_text(cursor.slice()?).then_some(())?;
                }
            }
            rows += count;
            if count < CHUNK_ROWS {
                return Some((self, rows));
            }
        }
    }

    #[inline(never)]
    fn links(mut self, before: u32) -> Option<(Self, u32)> {
        let mut rows = before;
        while self.cursor.next_is(tables::LINKS) {
            let link = rows::link(self.cursor.slice()?).ok()?;
            let lengths = (link.trace_id.len(), link.span_id.len());
            if !matches!(lengths, (0 | 16, 0 | 8)) {
                return None;
            }
            let mut ids = link.trace_id.iter().chain(link.span_id);
            if rows == 0 && ids.any(|&byte| byte != 0) {
                return None;
            }
            rows += 1;
        }
        Some((self, rows))
    }

    // === rows, after entering them ===

    #[inline(always)]
    fn mapping(&mut self, lists: &mut Lists) -> Option<()> {
        let (start, limit);
        if ORDER == ASCENDING {
            start = self.number_field(mapping::START)?;
            limit = self.number_field(mapping::LIMIT)?;
            self.skip_field(mapping::OFFSET)?;
            self.string_field(mapping::FILENAME)?;
            self.attributes_field(mapping::ATTRIBUTES, lists)?;
        } else {
            self.attributes_field(mapping::ATTRIBUTES, lists)?;
            self.string_field(mapping::FILENAME)?;
            self.skip_field(mapping::OFFSET)?;
            limit = self.number_field(mapping::LIMIT)?;
            start = self.number_field(mapping::START)?;
        }
        (start < limit || (start, limit) == (0, 0)).then_some(())
    }

    #[inline(always)]
    fn location(&mut self, lists: &mut Lists) -> Option<()> {
        if ORDER == ASCENDING {
            self.mapping_field()?;
            self.skip_field(location::ADDRESS)?;
            self.lines()?;
            self.attributes_field(location::ATTRIBUTES, lists)
        } else {
            self.attributes_field(location::ATTRIBUTES, lists)?;
            self.lines()?;
            self.skip_field(location::ADDRESS)?;
            self.mapping_field()
        }
    }

    #[inline(always)]
    fn mapping_field(&mut self) -> Option<()> {
        if self.cursor.next_is(location::MAPPING) {
            self.highest.mapping = self.highest.mapping.max(self.cursor.small()?);
        }
        Some(())
    }

    #[inline(always)]
    fn lines(&mut self) -> Option<()> {
        while self.cursor.next_is(location::LINES) {
            let location = self.cursor.enter()?;
            self.line()?;
            self.cursor.leave(location)?;
        }
        Some(())
    }

    #[inline(always)]
    fn line(&mut self) -> Option<()> {
        if ORDER == ASCENDING {
            if let Some((function, _)) = self.cursor.pair(line::FUNCTION, line::LINE) {
                self.highest.function = self.highest.function.max(function);
            } else {
                self.function_field()?;
                self.line_field()?;
            }
            self.skip_field(line::COLUMN)
        } else {
            self.skip_field(line::COLUMN)?;
            if let Some((_, function)) = self.cursor.pair(line::LINE, line::FUNCTION) {
                self.highest.function = self.highest.function.max(function);
                return Some(());
            }
            self.line_field()?;
            self.function_field()
        }
    }

    #[inline(always)]
    fn function_field(&mut self) -> Option<()> {
        if self.cursor.next_is(line::FUNCTION) {
            self.highest.function = self.highest.function.max(self.cursor.small()?);
        }
        Some(())
    }

    #[inline(always)]
    fn line_field(&mut self) -> Option<()> {
        if self.cursor.next_is(line::LINE) {
            self.cursor.skip_natural()?;
        }
        Some(())
    }

    #[inline(always)]
    fn function(&mut self, _lists: &mut Lists) -> Option<()> {
        let named;
        if ORDER == ASCENDING {
            if let Some((name, file)) = self.cursor.pair(function::NAME, function::FILENAME) {
                self.highest.string = self.highest.string.max(name).max(file);
                named = name | file;
            } else {
                named = self.string_field(function::NAME)?
                    | self.string_field(function::SYSTEM_NAME)?
                    | self.string_field(function::FILENAME)?;
            }
            self.skip_field(function::START_LINE)?;
        } else {
            self.skip_field(function::START_LINE)?;
            if let Some((file, name)) = self.cursor.pair(function::FILENAME, function::NAME) {
                self.highest.string = self.highest.string.max(name).max(file);
                named = name | file;
            } else {
                named = self.string_field(function::FILENAME)?
                    | self.string_field(function::SYSTEM_NAME)?
                    | self.string_field(function::NAME)?;
            }
        }
        (named != 0).then_some(())
    }

    #[inline(always)]
    fn stack(&mut self, _lists: &mut Lists) -> Option<()> {
        if self.cursor.next_is(stack::LOCATIONS) {
            let location = highest(self.cursor.slice()?)?;
            self.highest.location = self.highest.location.max(location);
        }
        Some(())
    }

    #[inline(always)]
    fn attribute(&mut self, lists: &mut Lists) -> Option<()> {
        if ORDER == ASCENDING {
            self.key_field(lists)?;
            self.value_field(attribute::VALUE, 0)?;
            self.string_field(attribute::UNIT)?;
        } else {
            self.string_field(attribute::UNIT)?;
            self.value_field(attribute::VALUE, 0)?;
            self.key_field(lists)?;
        }
        Some(())
    }

    #[inline(always)]
    fn key_field(&mut self, lists: &mut Lists) -> Option<()> {
        let key = self.string_field(attribute::KEY)?;
        lists.keys.push(key.into());
        Some(())
    }

    // === fields that may be absent ===

    #[inline(always)]
    fn number_field(&mut self, tag: u32) -> Option<u64> {
        match self.cursor.next_is(tag) {
            true => self.cursor.number(),
            false => Some(0),
        }
    }

    #[inline(always)]
    fn skip_field(&mut self, tag: u32) -> Option<()> {
        match self.cursor.next_is(tag) {
            true => self.cursor.skip_number(),
            false => Some(()),
        }
    }

    #[inline(always)]
    fn string_field(&mut self, tag: u32) -> Option<u32> {
        match self.cursor.next_is(tag) {
            true => self.string(),
            false => Some(0),
        }
    }

    #[inline(always)]
    fn attributes_field(&mut self, tag: u32, lists: &mut Lists) -> Option<()> {
        match self.cursor.next_is(tag) {
            true => self.attributes(lists),
            false => Some(()),
        }
    }

    #[inline(always)]
    fn value_field(&mut self, tag: u32, depth: usize) -> Option<()> {
        match self.cursor.next_is(tag) {
            true => self.value(depth),
            false => Some(()),
        }
    }

    #[inline(always)]
    fn string(&mut self) -> Option<u32> {
        let string = self.cursor.small()?;
        self.highest.string = self.highest.string.max(string);
        Some(string)
    }

    #[inline(always)]
    fn attributes(&mut self, lists: &mut Lists) -> Option<()> {
        let end = self.cursor.end()?;
        if let Some(&[attribute @ 0..0x80]) = self.cursor.slice_to(end) {
            self.highest.attribute = self.highest.attribute.max(u32::from(attribute));
        } else {
            lists.waiting.push((self.cursor.at, end));
        }
        self.cursor.at = end;
        (lists.waiting.len() < MAX_PENDING_LISTS).then_some(())
    }

    // === values ===

    /// A message of at most one field.
    #[inline(always)]
    fn value(&mut self, depth: usize) -> Option<()> {
        let outer = self.cursor.enter()?;
        if self.cursor.next_is(any_value::STRING) {
            if !is_text(self.cursor.slice()?) {
                return None;
            }
        } else if !self.cursor.is_at_end() {
            self.other_value(depth)?;
        }
        self.cursor.leave(outer)
    }

    #[inline(never)]
    fn other_value(&mut self, depth: usize) -> Option<()> {
        let tag = self.cursor.peek()?;
        self.cursor.at += 1;
        match tag {
            any_value::BOOL | any_value::INT => self.cursor.skip_number(),
            any_value::DOUBLE => {
                self.cursor.slice_to(self.cursor.at + 8)?;
                self.cursor.at += 8;
                Some(())
            }
            any_value::STRING_INDEX => self.string().map(drop),
            any_value::BYTES => self.cursor.slice().map(drop),
            any_value::ARRAY => self.items(depth, Self::value),
            any_value::MAP => self.items(depth, Self::pair),
            _ => None,
        }
    }

    fn items(&mut self, depth: usize, item: impl Fn(&mut Self, usize) -> Option<()>) -> Option<()> {
        if depth == MAX_DEPTH {
            return None;
        }
        let outer = self.cursor.enter()?;
        while !self.cursor.is_at_end() {
            if !self.cursor.next_is(list::ITEMS) {
                return None;
            }
            item(self, depth + 1)?;
        }
        self.cursor.leave(outer)
    }

    fn pair(&mut self, depth: usize) -> Option<()> {
        let outer = self.cursor.enter()?;
        if ORDER == ASCENDING {
            self.key_text()?;
            self.value_field(key_value::VALUE, depth)?;
            self.string_field(key_value::KEY_INDEX)?;
        } else {
            self.string_field(key_value::KEY_INDEX)?;
            self.value_field(key_value::VALUE, depth)?;
            self.key_text()?;
        }
        self.cursor.leave(outer)
    }

    fn key_text(&mut self) -> Option<()> {
        if self.cursor.next_is(key_value::KEY) {
            return is_text(self.cursor.slice()?).then_some(());
        }
        Some(())
    }
}
