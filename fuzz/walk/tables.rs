//! The memory of the unwind tables, filled as by the loader.

use profcol_ebpf_common::file::TableRef;
use profcol_ebpf_common::rule::EncodedRule;
use profcol_ebpf_common::table::{Page, Row};
use profcol_ebpf_unwind::Table;

#[derive(Default)]
pub struct TableMemory {
    words: Vec<u32>,
    rules: Vec<EncodedRule>,
    /// Whether a read outside of the tables is due to damage, not to a bug in the programs.
    pub is_damaged: bool,
}

impl TableMemory {
    /// Adds a table; pages for which `is_built` returns false are omitted, as in huge files.
    pub fn insert(&mut self, table: &Table, mut is_built: impl FnMut() -> bool) -> TableRef {
        let pages = self.words.len() as u32;
        let rows = pages + table.pages.len() as u32 * Page::WORDS;
        for page in &table.pages {
            let page = if is_built() {
                Page {
                    rows: rows + page.rows,
                    ..*page
                }
            } else {
                Page::NOT_BUILT
            };
            self.words.extend([page.rows, page.count]);
        }
        let first = self.rules.len() as u32;
        self.rules.extend(&table.rules);
        let moved = |row: &Row| Row::new(u64::from(row.offset()), first + row.rule()).0;
        self.words.extend(table.rows.iter().map(moved));
        TableRef {
            pages,
            first_page: table.first_page as u32,
            page_count: table.pages.len() as u32,
        }
    }

    /// Overwrites an arbitrary word of the rows.
    pub fn damage(&mut self, place: usize, value: u32) {
        self.is_damaged = true;
        if !self.words.is_empty() {
            let place = place % self.words.len();
            self.words[place] = value;
        }
    }

    pub fn word(&self, index: u32) -> u32 {
        let word = self.words.get(index as usize).copied();
        assert!(
            word.is_some() || self.is_damaged,
            "read outside of the tables"
        );
        word.unwrap_or(0)
    }

    pub fn rule(&self, index: u32) -> EncodedRule {
        let rule = self.rules.get(index as usize).copied();
        assert!(
            rule.is_some() || self.is_damaged,
            "read outside of the rules"
        );
        rule.unwrap_or(EncodedRule(0))
    }
}
