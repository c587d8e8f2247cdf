//! The format of unwind tables.
//!
//! A table maps each offset of an executable file's code to a rule. It is keyed by file offset, so all
//! processes that map the file share it.
//!
//! ```text
//! pages   one entry per 4 KiB of the file: index of its first row and number of rows
//! rows    four bytes each: offset in the page (12 bits), index of the rule (20 bits)
//! rules   eight bytes each, shared by all tables
//! ```
//!
//! A row is valid up to the next one. The first row of each page is at the page's first byte or repeats
//! the rule that is valid there, so a search never leaves its page; before the first row is a gap.

/// Bytes of the file that share an entry of the page index, as a power of two.
pub const PAGE_SHIFT: u32 = 12;
pub const PAGE_SIZE: u64 = 1 << PAGE_SHIFT;
const OFFSET_MASK: u32 = (1 << PAGE_SHIFT) - 1;

/// Rows have 20 bits for the rule.
pub const MAX_RULES: u32 = 1 << 20;

/// At most one row per byte.
pub const MAX_ROWS_OF_PAGE: u32 = PAGE_SIZE as u32;

/// One row: the rule that is valid from this offset in the page on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub struct Row(pub u32);

impl Row {
    /// `rule` is below [`MAX_RULES`].
    pub fn new(offset: u64, rule: u32) -> Self {
        Self(offset as u32 & OFFSET_MASK | rule << PAGE_SHIFT)
    }

    pub fn offset(self) -> u32 {
        self.0 & OFFSET_MASK
    }

    pub fn rule(self) -> u32 {
        self.0 >> PAGE_SHIFT
    }
}

/// An entry of the page index: two words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Page {
    /// The first word of the page's rows.
    pub rows: u32,
    pub count: u32,
}

impl Page {
    pub const EMPTY: Self = Self { rows: 0, count: 0 };
    /// The page of a large file was not needed yet.
    pub const NOT_BUILT: Self = Self {
        rows: 0,
        count: u32::MAX,
    };
    pub const WORDS: u32 = 2;

    pub fn to_word(self) -> u64 {
        u64::from(self.count) << 32 | u64::from(self.rows)
    }

    pub fn from_word(word: u64) -> Self {
        Self {
            rows: word as u32,
            count: (word >> 32) as u32,
        }
    }
}

/// On kernels without arenas the table memory is in blocks of this many words.
pub const BLOCK_SHIFT: u32 = 16;
pub const BLOCK_WORDS: usize = 1 << BLOCK_SHIFT;

/// The table memory: words of four bytes.
pub trait Words {
    fn word(&self, index: u32) -> u32;
}

/// The last row of `count` from `first` that is at or before `offset`; none if the first one is after
/// it.
///
/// Branchless on the rows' content, so the verifier explores one path instead of two for each of the
/// twelve iterations.
#[inline(always)]
pub fn search(words: &impl Words, first: u32, count: u32, offset: u64) -> Option<Row> {
    let wanted = offset as u32 & OFFSET_MASK;
    let (mut low, mut length) = (first, count);
    for _ in 0..PAGE_SHIFT {
        if length <= 1 {
            break;
        }
        let half = length >> 1;
        let begins = words.word(low.wrapping_add(half)) & OFFSET_MASK;
        let before = crate::barrier_var_u32(wanted.wrapping_sub(begins) >> 31);
        low = low.wrapping_add(half & before.wrapping_sub(1));
        length -= half;
    }
    let row = Row(words.word(low));
    (row.offset() <= wanted).then_some(row)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::vec;
    use std::vec::Vec;

    impl Words for Vec<u32> {
        fn word(&self, index: u32) -> u32 {
            self[index as usize]
        }
    }

    proptest! {
        #[test]
        fn finds_the_row_that_a_scan_finds(
            mut offsets in proptest::collection::btree_set(0u64..PAGE_SIZE, 1..200),
            wanted in 0..PAGE_SIZE,
            first in 0usize..5,
            whole in any::<bool>(),
        ) {
            if whole {
                offsets = (0..PAGE_SIZE).collect();
            }
            let mut words = vec![u32::MAX; first];
            words.extend(offsets.iter().enumerate().map(|(rule, &at)| Row::new(at, rule as u32).0));
            let scanned = offsets
                .iter()
                .enumerate()
                .rfind(|&(_, &at)| at <= wanted)
                .map(|(rule, &at)| Row::new(at, rule as u32));
            prop_assert_eq!(search(&words, first as u32, offsets.len() as u32, wanted), scanned);
        }
    }
}
