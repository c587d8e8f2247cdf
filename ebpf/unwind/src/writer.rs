//! Writes the rows of a table in file order.

use crate::UnwindTableError;
use crate::table::Table;
use foldhash::fast::RandomState;
use hashbrown::HashMap;
use profcol_ebpf_common::rule::{EncodedRule, Rule};
use profcol_ebpf_common::table::{PAGE_SHIFT, Page, Row};

/// A rule from this address on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Step {
    pub at: u64,
    pub rule: EncodedRule,
}

/// 32 MiB; the largest seen, a Go program with the API of a whole cloud, has six million.
pub(crate) const MAX_ROWS: usize = 8 << 20;

/// Maximum number of distinct rules of one file: at most 883 among 1,330 files. All files share a million, so no
/// file may use many more.
const MAX_RULES: usize = 1 << 14;

const GAP: u32 = 0;
const UNSUPPORTED: u32 = 1;

pub(crate) struct Writer {
    table: Table,
    numbers: HashMap<EncodedRule, u32, RandomState>,
    /// The rule at the end of the last row, and its index.
    current: u32,
    last: (EncodedRule, u32),
}

impl Writer {
    /// `start` is the file offset of the first byte of code.
    pub fn new(start: u64) -> Self {
        let mut writer = Self {
            table: Table {
                first_page: start >> PAGE_SHIFT,
                pages: vec![Page::EMPTY],
                rows: Vec::new(),
                rules: Vec::new(),
            },
            numbers: HashMap::default(),
            current: GAP,
            last: (Rule::Gap.encode(), GAP),
        };
        writer.number(Rule::Gap.encode());
        writer.number(Rule::Unsupported.encode());
        writer
    }

    /// Sets the rule from file offset `offset` on; offsets must not decrease.
    pub fn set(&mut self, offset: u64, rule: EncodedRule) -> Result<(), UnwindTableError> {
        let number = if rule == self.last.0 {
            self.last.1
        } else {
            self.number(rule)
        };
        self.last = (rule, number);
        self.turn_to(offset >> PAGE_SHIFT)?;
        if number == self.current {
            return Ok(());
        }
        let row = Row::new(offset, number);
        let first = self.page().rows as usize;
        if self.table.rows.len() > first
            && let Some(last) = self.table.rows.last()
            && last.offset() == row.offset()
        {
            self.table.rows.pop();
            self.current = self.row_before(first);
            if number == self.current {
                return Ok(());
            }
        }
        self.current = number;
        self.push(row)
    }

    /// Ends the table at `end`; there are no rules after it.
    pub fn finish(mut self, end: u64) -> Result<Table, UnwindTableError> {
        self.set(end, Rule::Gap.encode())?;
        self.close();
        let last = (end.saturating_sub(1) >> PAGE_SHIFT).saturating_sub(self.table.first_page);
        self.table.pages.truncate(last as usize + 1);
        self.table.pages.shrink_to_fit();
        self.table.rows.shrink_to_fit();
        self.table.rules.shrink_to_fit();
        Ok(self.table)
    }

    fn number(&mut self, rule: EncodedRule) -> u32 {
        let rules = &mut self.table.rules;
        match self.numbers.get(&rule) {
            Some(&number) => number,
            None if rules.len() >= MAX_RULES => UNSUPPORTED,
            None => {
                let number = rules.len() as u32;
                rules.push(rule);
                self.numbers.insert(rule, number);
                number
            }
        }
    }

    /// Opens the pages up to this one; each repeats the rule at its start.
    fn turn_to(&mut self, page: u64) -> Result<(), UnwindTableError> {
        let index = page.saturating_sub(self.table.first_page) as usize;
        while self.table.pages.len() <= index {
            self.close();
            self.table.pages.push(Page {
                rows: self.table.rows.len() as u32,
                count: 0,
            });
            if self.current != GAP {
                self.push(Row::new(0, self.current))?;
            }
        }
        Ok(())
    }

    fn page(&self) -> Page {
        *self.table.pages.last().unwrap_or(&Page::EMPTY)
    }

    fn close(&mut self) {
        let rows = self.table.rows.len() as u32;
        if let Some(page) = self.table.pages.last_mut() {
            page.count = rows - page.rows;
            if page.count == 0 {
                *page = Page::EMPTY;
            }
        }
    }

    fn row_before(&self, first_of_page: usize) -> u32 {
        match self.table.rows.get(first_of_page..).and_then(<[_]>::last) {
            Some(row) => row.rule(),
            None => GAP,
        }
    }

    fn push(&mut self, row: Row) -> Result<(), UnwindTableError> {
        if self.table.rows.len() >= MAX_ROWS {
            return Err(UnwindTableError::TooLarge {
                what: "the number of rows",
                size: MAX_ROWS as u64 + 1,
                limit: MAX_ROWS as u64,
            });
        }
        self.table.rows.push(row);
        Ok(())
    }
}
