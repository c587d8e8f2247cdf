//! Tables.

use super::cursor::{Cursor, highest};
use super::distinct_keys;
use crate::StringIdx;
use crate::proto::tag;
use crate::wire::rows;
use crate::wire::tags::{
    any_value, attribute, dictionary as tables, function, key_value, line, list, location, mapping,
    stack,
};
use crate::wire::text::is_text;
use crate::wire::texts::{BETWEEN, Mark, Texts};
use crate::wire::value::MAX_DEPTH;

/// Lists that wait for the attribute table; with more of them the walk takes over.
const MAX_WAITING: usize = 1 << 16;

/// A dictionary in which everything is as it should be.
pub(in crate::wire) struct FastPathState<'a> {
    pub rows: RowCounts,
    /// The key of each row of the attribute table; those of equal text are equal.
    pub keys: Vec<StringIdx>,
    pub texts: Texts<'a>,
}

/// How many rows each table has on the wire.
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
    let mut rows = RowCounts::default();
    let mut pass = Pass {
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

/// Handed on by value and apart from what is in memory anyway, so that the loop over a table can
/// keep it in registers.
#[derive(Clone, Copy)]
struct Pass<'a> {
    cursor: Cursor<'a>,
    highest: Highest,
}

#[derive(Default)]
struct Lists {
    keys: Vec<StringIdx>,
    /// Where lists of more than one attribute start and end: their keys may not be known yet.
    waiting: Vec<(usize, usize)>,
    /// Where strings begin.
    marks: Vec<Mark>,
}

/// The highest row of each table to which another row refers.
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
    fn mark(&mut self, pass: &Pass<'_>, row: u32) {
        let at = pass.cursor.at as u32;
        self.marks.push(Mark { row, at });
    }
}

impl<'a> Pass<'a> {
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
        // A table that was left out has its row 0 nevertheless.
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

    /// The rows of a table that follow each other: how many there are with those `before`. Not
    /// inlined: each table gets a loop of its own.
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
        /// Rows that are looked at together.
        const TOGETHER: u32 = BETWEEN;

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
            while count < TOGETHER && self.cursor.next_is(tables::STRINGS) {
                self.cursor.at = self.cursor.end()?;
                count += 1;
            }
            // With their tags and lengths, which are ASCII too if they are short.
            if !start.slice_to(self.cursor.at)?.is_ascii() {
                let mut cursor = start;
                for _ in 0..count {
                    cursor.next_is(tables::STRINGS);
                    is_text(cursor.slice()?).then_some(())?;
                }
            }
            rows += count;
            if count < TOGETHER {
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

    // === rows that have been entered ===

    #[inline(always)]
    fn mapping(&mut self, lists: &mut Lists) -> Option<()> {
        let (mut start, mut limit) = (0, 0);
        if self.cursor.next_is(mapping::START) {
            start = self.cursor.number()?;
        }
        if self.cursor.next_is(mapping::LIMIT) {
            limit = self.cursor.number()?;
        }
        if start >= limit && (start, limit) != (0, 0) {
            return None;
        }
        if self.cursor.next_is(mapping::OFFSET) {
            self.cursor.skip_number()?;
        }
        if self.cursor.next_is(mapping::FILENAME) {
            self.string()?;
        }
        if self.cursor.next_is(mapping::ATTRIBUTES) {
            self.attributes(lists)?;
        }
        Some(())
    }

    #[inline(always)]
    fn location(&mut self, lists: &mut Lists) -> Option<()> {
        if self.cursor.next_is(location::MAPPING) {
            self.highest.mapping = self.highest.mapping.max(self.cursor.small()?);
        }
        if self.cursor.next_is(location::ADDRESS) {
            self.cursor.skip_number()?;
        }
        while self.cursor.next_is(location::LINES) {
            let location = self.cursor.enter()?;
            self.line()?;
            self.cursor.leave(location)?;
        }
        if self.cursor.next_is(location::ATTRIBUTES) {
            self.attributes(lists)?;
        }
        Some(())
    }

    #[inline(always)]
    fn line(&mut self) -> Option<()> {
        if let Some((function, _)) = self.cursor.pair(line::FUNCTION, line::LINE) {
            self.highest.function = self.highest.function.max(function);
        } else {
            if self.cursor.next_is(line::FUNCTION) {
                self.highest.function = self.highest.function.max(self.cursor.small()?);
            }
            if self.cursor.next_is(line::LINE) {
                self.cursor.skip_natural()?;
            }
        }
        if self.cursor.next_is(line::COLUMN) {
            self.cursor.skip_number()?;
        }
        Some(())
    }

    #[inline(always)]
    fn function(&mut self, _lists: &mut Lists) -> Option<()> {
        let mut named = 0;
        if let Some((name, file)) = self.cursor.pair(function::NAME, function::FILENAME) {
            self.highest.string = self.highest.string.max(name).max(file);
            named = name | file;
        } else {
            if self.cursor.next_is(function::NAME) {
                named |= self.string()?;
            }
            if self.cursor.next_is(function::SYSTEM_NAME) {
                named |= self.string()?;
            }
            if self.cursor.next_is(function::FILENAME) {
                named |= self.string()?;
            }
        }
        if self.cursor.next_is(function::START_LINE) {
            self.cursor.skip_number()?;
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
        let mut key = 0;
        if self.cursor.next_is(attribute::KEY) {
            key = self.string()?;
        }
        lists.keys.push(key.into());
        if self.cursor.next_is(attribute::VALUE) {
            self.value(0)?;
        }
        if self.cursor.next_is(attribute::UNIT) {
            self.string()?;
        }
        Some(())
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
        (lists.waiting.len() < MAX_WAITING).then_some(())
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
        if self.cursor.next_is(key_value::KEY) && !is_text(self.cursor.slice()?) {
            return None;
        }
        if self.cursor.next_is(key_value::VALUE) {
            self.value(depth)?;
        }
        if self.cursor.next_is(key_value::KEY_INDEX) {
            self.string()?;
        }
        self.cursor.leave(outer)
    }
}
