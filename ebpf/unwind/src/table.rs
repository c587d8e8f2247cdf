//! The rules of a file's code.

use std::ops::Range;

use foldhash::fast::RandomState;
use hashbrown::HashMap;
use profcol_ebpf_common::rule::{EncodedRule, Rule};
use profcol_ebpf_common::table::{PAGE_SHIFT, PAGE_SIZE, Page, Row, Words, search};

/// The rules of a file's code in the layout of [`profcol_ebpf_common::table`], with local indices: pages refer to
/// `rows`, rows refer to `rules`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Table {
    /// The file's page number of the first entry in `pages`.
    pub first_page: u64,
    pub pages: Vec<Page>,
    pub rows: Vec<Row>,
    /// The rules that rows refer to, without duplicates.
    pub rules: Vec<EncodedRule>,
}

struct Marker<'a> {
    rules: &'a mut Vec<EncodedRule>,
    /// The index of the marked rule by that of the unmarked one.
    marked: HashMap<u32, u32, RandomState>,
}

impl Marker<'_> {
    /// Marks the rows of one page; splits a row where a loop begins or ends inside it.
    fn mark(&mut self, start: u64, own: &[Row], loops: &[Range<u64>], rows: &mut Vec<Row>) {
        let is_loop = |at: u64| loops.iter().any(|range| range.contains(&at));
        let mut bounds: Vec<u64> = loops
            .iter()
            .flat_map(|range| [range.start, range.end])
            .filter(|bound| (start..start + PAGE_SIZE).contains(bound))
            .collect();
        bounds.sort_unstable();
        let mut bounds = bounds.into_iter().peekable();
        // Code before the first row has no rule.
        let first = own.first().map_or(PAGE_SIZE, |row| u64::from(row.offset()));
        let is_unruled = loops
            .iter()
            .any(|range| range.start < start + first && range.end > start);
        let unruled = is_unruled.then(|| Row::new(start, self.gap()));
        let own: Vec<Row> = unruled.into_iter().chain(own.iter().copied()).collect();
        for (index, row) in own.iter().enumerate() {
            let at = start + u64::from(row.offset());
            let end = own
                .get(index + 1)
                .map_or(start + PAGE_SIZE, |next| start + u64::from(next.offset()));
            let mut push = |at: u64| {
                let rule = if is_loop(at) {
                    self.marked(row.rule())
                } else {
                    row.rule()
                };
                rows.push(Row::new(at, rule));
            };
            push(at);
            while let Some(bound) = bounds.next_if(|&bound| bound < end) {
                if bound > at {
                    push(bound);
                }
            }
        }
    }

    fn gap(&mut self) -> u32 {
        let gap = Rule::Gap.encode();
        let known = self.rules.iter().position(|rule| *rule == gap);
        let number = known.unwrap_or(self.rules.len());
        if known.is_none() {
            self.rules.push(gap);
        }
        number as u32
    }

    fn marked(&mut self, rule: u32) -> u32 {
        if let Some(&known) = self.marked.get(&rule) {
            return known;
        }
        let number = match self.rules.get(rule as usize) {
            Some(plain) => {
                let marked = plain.in_interpreter();
                self.rules.push(marked);
                self.rules.len() as u32 - 1
            }
            None => rule,
        };
        self.marked.insert(rule, number);
        number
    }
}

struct Rows<'a>(&'a [Row]);

impl Words for Rows<'_> {
    fn word(&self, index: u32) -> u32 {
        self.0.get(index as usize).map_or(0, |row| row.0)
    }
}

impl Table {
    /// The rule at this file offset.
    pub fn lookup(&self, file_offset: u64) -> Rule {
        let page = (file_offset >> PAGE_SHIFT)
            .checked_sub(self.first_page)
            .and_then(|index| self.pages.get(usize::try_from(index).ok()?));
        let Some(page) = page.filter(|page| page.count > 0) else {
            return Rule::Gap;
        };
        search(&Rows(&self.rows), page.rows, page.count, file_offset)
            .and_then(|row| self.rules.get(row.rule() as usize))
            .map_or(Rule::Gap, |rule| rule.decode())
    }

    /// Marks the rules of interpreter loops, given by file offsets.
    pub fn mark_interpreter(&mut self, loops: &[Range<u64>]) {
        let mut marker = Marker {
            rules: &mut self.rules,
            marked: HashMap::default(),
        };
        let mut rows = Vec::with_capacity(self.rows.len());
        for (number, page) in self.pages.iter_mut().enumerate() {
            let start = (self.first_page + number as u64) << PAGE_SHIFT;
            let begin = rows.len();
            let first = page.rows as usize;
            let own = self.rows.get(first..first + page.count as usize);
            marker.mark(start, own.unwrap_or_default(), loops, &mut rows);
            *page = match (rows.len() - begin) as u32 {
                0 => Page::EMPTY,
                count => Page {
                    rows: begin as u32,
                    count,
                },
            };
        }
        self.rows = rows;
    }

    /// The memory size of the table.
    pub fn bytes(&self) -> usize {
        size_of_val(self.pages.as_slice())
            + size_of_val(self.rows.as_slice())
            + size_of_val(self.rules.as_slice())
    }
}
