//! The memory of the unwind tables, shared with the programs.
//!
//! It starts with the rules, followed by allocations, each a page index with its rows. An allocation is
//! written first and published afterwards, through the map of files. A freed allocation stays in quarantine
//! before reuse, since a running program may still read it. Stale reads are harmless: programs check
//! every rule, and the memory itself is always readable.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use aya::maps::MapError;
use profcol_ebpf_common::file::TableRef;
use profcol_ebpf_common::rule::EncodedRule;
use profcol_ebpf_common::settings::FRAME_CACHE_TTL_SHIFT;
use profcol_ebpf_common::table::{MAX_RULES, Page, Row};
use profcol_ebpf_unwind::Table;

use crate::memory::Memory;

/// Maximum number of distinct rules; a whole distribution has less than five thousand.
const RULES: u32 = 1 << 16;
const _: () = assert!(RULES <= MAX_RULES);
const WORDS_OF_RULES: u32 = RULES * 2;

/// Longer than programs cache where a page's rows are, which is nine seconds.
const REUSE_DELAY: Duration = Duration::from_secs(10);
const _: () = assert!(REUSE_DELAY.as_nanos() > 1 << FRAME_CACHE_TTL_SHIFT);

pub struct Arena {
    memory: Memory,
    rules: HashMap<EncodedRule, u32>,
    free: FreeList,
    quarantined: VecDeque<(Instant, Allocation)>,
    used_words: u64,
}

/// A range of words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Allocation {
    pub start: u32,
    pub words: u32,
}

#[derive(Debug, thiserror::Error)]
pub enum AllocError {
    #[error("the memory for unwind tables is full")]
    Full,
    #[error("failed to allocate memory for unwind tables: {0}")]
    Refused(#[from] MapError),
    #[error("more than {RULES} distinct unwind rules")]
    TooManyRules,
}

impl Arena {
    pub fn new(memory: Memory) -> Self {
        let words = memory.words();
        Self {
            memory,
            rules: HashMap::new(),
            free: FreeList::new(WORDS_OF_RULES, words.saturating_sub(WORDS_OF_RULES)),
            quarantined: VecDeque::new(),
            used_words: 0,
        }
    }

    /// The base address in the programs.
    pub fn address(&self) -> u64 {
        self.memory.address()
    }

    /// The offset of the rules from the start, in bytes.
    pub const RULES_OFFSET: u64 = 0;

    /// The total size, used or not.
    pub fn bytes(&self) -> u64 {
        u64::from(self.memory.words()) * 4
    }

    pub fn used_bytes(&self) -> u64 {
        self.used_words * 4 + self.rules.len() as u64 * 8
    }

    /// Inserts a table. The returned allocation starts with its page index.
    pub fn insert(&mut self, table: &Table) -> Result<Allocation, AllocError> {
        let rules = self.intern(&table.rules)?;
        let index_words = table.pages.len() * Page::WORDS as usize;
        let words = u32::try_from(index_words + table.rows.len()).map_err(|_| AllocError::Full)?;
        let allocation = self.take(words)?;
        let rows_at = allocation.start + index_words as u32;
        for (number, page) in table.pages.iter().enumerate() {
            let entry = allocation.start + number as u32 * Page::WORDS;
            self.store(entry, rows_at + page.rows);
            self.store(entry + 1, page.count);
        }
        self.store_rows(rows_at, &table.rows, &rules);
        Ok(allocation)
    }

    /// Inserts an empty table, shared by all files without unwind information.
    pub fn insert_empty(&mut self) -> Result<TableRef, AllocError> {
        let page = self.take(Page::WORDS)?;
        self.set_page(page, 0, Page::EMPTY);
        // Pages after the last one count as empty, too.
        Ok(TableRef {
            pages: page.start,
            first_page: 0,
            page_count: 1,
        })
    }

    /// Allocates the index of a table without any built page.
    pub fn reserve_pages(&mut self, count: u32) -> Result<Allocation, AllocError> {
        let words = count.checked_mul(Page::WORDS).ok_or(AllocError::Full)?;
        let pages = self.take(words)?;
        for page in 0..count {
            self.set_page(pages, page, Page::NOT_BUILT);
        }
        Ok(pages)
    }

    pub fn has_page(&self, pages: Allocation, page: u32) -> bool {
        self.load(pages.start + page * Page::WORDS + 1) != Page::NOT_BUILT.count
    }

    /// Inserts the missing pages of a table, starting at index entry `first`.
    pub fn insert_pages(
        &mut self,
        index: Allocation,
        first: u32,
        table: &Table,
    ) -> Result<(), AllocError> {
        let rules = self.intern(&table.rules)?;
        for (place, page) in (first..).zip(&table.pages) {
            if self.has_page(index, place) {
                continue;
            }
            let rows = page.rows as usize..(page.rows + page.count) as usize;
            let rows = table.rows.get(rows).unwrap_or_default();
            let built = match rows.len() as u32 {
                0 => Page::EMPTY,
                count => Page {
                    rows: self.take(count)?.start,
                    count,
                },
            };
            self.store_rows(built.rows, rows, &rules);
            self.set_page(index, place, built);
        }
        Ok(())
    }

    /// Marks a page as empty.
    pub fn abandon_page(&mut self, pages: Allocation, page: u32) {
        self.set_page(pages, page, Page::EMPTY);
    }

    /// Stores the count last, because a program reads it first.
    fn set_page(&mut self, pages: Allocation, page: u32, entry: Page) {
        let at = pages.start + page * Page::WORDS;
        self.store(at, entry.rows);
        self.store(at + 1, entry.count);
    }

    fn store_rows(&mut self, at: u32, rows: &[Row], rules: &[u32]) {
        for (number, row) in rows.iter().enumerate() {
            let rule = rules.get(row.rule() as usize).copied().unwrap_or_default();
            let row = Row::new(u64::from(row.offset()), rule);
            self.store(at + number as u32, row.0);
        }
    }

    /// Frees a table's memory, after a quarantine.
    pub fn remove(&mut self, allocation: Allocation) {
        self.used_words -= u64::from(allocation.words);
        self.quarantined.push_back((Instant::now(), allocation));
    }

    /// Memory in quarantine, free soon.
    pub fn quarantined_bytes(&self) -> u64 {
        let words: u64 = self
            .quarantined
            .iter()
            .map(|(_, allocation)| u64::from(allocation.words))
            .sum();
        words * 4
    }

    /// Frees the memory of a table that was built page by page.
    pub fn remove_pages(&mut self, pages: Allocation) {
        for page in 0..pages.words / Page::WORDS {
            let at = pages.start + page * Page::WORDS;
            let (start, words) = (self.load(at), self.load(at + 1));
            if words > 0 && words != Page::NOT_BUILT.count {
                self.remove(Allocation { start, words });
            }
        }
        self.remove(pages);
    }

    fn take(&mut self, words: u32) -> Result<Allocation, AllocError> {
        while let Some((since, allocation)) = self.quarantined.front()
            && since.elapsed() >= REUSE_DELAY
        {
            self.free.give(*allocation);
            self.quarantined.pop_front();
        }
        let start = self.free.take(words).ok_or(AllocError::Full)?;
        let allocation = Allocation { start, words };
        if let Err(refused) = self.ensure_mapped(allocation) {
            self.free.give(allocation);
            return Err(refused);
        }
        self.used_words += u64::from(words);
        Ok(allocation)
    }

    fn ensure_mapped(&mut self, allocation: Allocation) -> Result<(), AllocError> {
        self.memory
            .ensure_mapped(allocation.start, allocation.words)?;
        Ok(())
    }

    fn intern(&mut self, rules: &[EncodedRule]) -> Result<Vec<u32>, AllocError> {
        rules
            .iter()
            .map(|&rule| {
                if let Some(&index) = self.rules.get(&rule) {
                    return Ok(index);
                }
                let index = self.rules.len() as u32;
                if index >= RULES {
                    return Err(AllocError::TooManyRules);
                }
                self.ensure_mapped(Allocation {
                    start: index * 2,
                    words: 2,
                })?;
                self.store(index * 2, rule.0 as u32);
                self.store(index * 2 + 1, (rule.0 >> 32) as u32);
                self.rules.insert(rule, index);
                Ok(index)
            })
            .collect()
    }

    fn load(&self, word: u32) -> u32 {
        self.memory.word(word).load(Ordering::Relaxed)
    }

    fn store(&self, word: u32, value: u32) {
        self.memory.word(word).store(value, Ordering::Release);
    }
}

/// The free ranges by start; adjacent ones are merged.
pub struct FreeList {
    by_start: BTreeMap<u32, u32>,
}

impl FreeList {
    pub fn new(start: u32, words: u32) -> Self {
        Self {
            by_start: BTreeMap::from([(start, words)]),
        }
    }

    /// First fit: there are few ranges, and the memory at the end stays untouched for longest.
    pub fn take(&mut self, words: u32) -> Option<u32> {
        let (&start, &length) = self.by_start.iter().find(|&(_, &length)| length >= words)?;
        self.by_start.remove(&start);
        if length > words {
            self.by_start.insert(start + words, length - words);
        }
        Some(start)
    }

    pub fn give(&mut self, allocation: Allocation) {
        let Allocation {
            mut start,
            mut words,
        } = allocation;
        if let Some((&before, &length)) = self.by_start.range(..start).next_back()
            && before + length == start
        {
            self.by_start.remove(&before);
            start = before;
            words += length;
        }
        if let Some(length) = self.by_start.remove(&(start + words)) {
            words += length;
        }
        if words > 0 {
            self.by_start.insert(start, words);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn merges_adjacent_free_ranges() {
        let mut list = FreeList::new(10, 100);
        let allocations: Vec<Allocation> = (0..10)
            .map(|_| Allocation {
                start: list.take(10).expect("has room"),
                words: 10,
            })
            .collect();
        assert_eq!(list.take(1), None);
        for index in [3, 1, 2, 9, 0, 8, 4, 6, 5, 7] {
            list.give(allocations[index]);
        }
        assert_eq!(list.by_start, BTreeMap::from([(10, 100)]));
        assert_eq!(list.take(100), Some(10));
    }
}
