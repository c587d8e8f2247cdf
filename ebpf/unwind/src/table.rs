//! The rules of a file's code.

use profcol_ebpf_common::rule::Rule;
use profcol_ebpf_common::table::{PAGE_SHIFT, Page, Row, Words, search};

/// The rules of a file's code, as [`profcol_ebpf_common::table`] shows it, with numbers of its own:
/// pages name rows of `rows`, rows name rules of `rules`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Table {
    /// Number of the page in the file that the first of `pages` describes.
    pub first_page: u64,
    pub pages: Vec<Page>,
    pub rows: Vec<Row>,
    /// All different.
    pub rules: Vec<Rule>,
}

struct Rows<'a>(&'a [Row]);

impl Words for Rows<'_> {
    fn word(&self, index: u32) -> u32 {
        self.0.get(index as usize).map_or(0, |row| row.0)
    }
}

impl Table {
    /// What holds at this offset of the file.
    pub fn lookup(&self, file_offset: u64) -> Rule {
        let page = (file_offset >> PAGE_SHIFT)
            .checked_sub(self.first_page)
            .and_then(|index| self.pages.get(usize::try_from(index).ok()?));
        let Some(page) = page.filter(|page| page.count > 0) else {
            return Rule::Gap;
        };
        search(&Rows(&self.rows), page.rows, page.count, file_offset)
            .and_then(|row| self.rules.get(row.rule() as usize))
            .copied()
            .unwrap_or(Rule::Gap)
    }

    /// What the table takes in memory.
    pub fn bytes(&self) -> usize {
        size_of_val(self.pages.as_slice())
            + size_of_val(self.rows.as_slice())
            + size_of_val(self.rules.as_slice())
    }
}
