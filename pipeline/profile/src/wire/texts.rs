//! Access to single string table rows without a full index.
//!
//! Validation only compares attribute keys, which are few. So only the position of every 64th row is stored, and rows
//! are counted from there.

use super::fields::{Rows, fields};
use super::tags::dictionary;
use crate::StringIdx;

/// Rows between marks.
pub const ROWS_PER_MARK: u32 = 64;

#[derive(Default)]
pub struct Texts<'a> {
    /// The dictionary.
    message: &'a [u8],
    marks: Vec<Mark>,
    rows: u32,
}

/// The start of a row, at its tag.
#[derive(Clone, Copy)]
pub struct Mark {
    pub row: u32,
    pub at: u32,
}

impl<'a> Texts<'a> {
    /// Marks are at most `ROWS_PER_MARK` rows apart, starting at row 0.
    pub fn new(message: &'a [u8], marks: Vec<Mark>, rows: u32) -> Self {
        Self {
            message,
            marks,
            rows,
        }
    }

    pub fn get(&self, row: StringIdx) -> Option<&'a [u8]> {
        self.walk().get(row)
    }

    /// Replaces keys of equal text with the first such row.
    pub fn unify(&self, keys: &mut [StringIdx]) {
        let mut walk = self.walk();
        let distinct = self.distinct(keys);
        let text = |key| Some((walk.get(key)?, key));
        let mut texts: Vec<(&[u8], StringIdx)> = distinct.into_iter().filter_map(text).collect();
        texts.sort_unstable();
        if texts.windows(2).any(|pair| pair[0].0 == pair[1].0) {
            replace(keys, &texts);
        }
    }

    /// The distinct keys in order.
    fn distinct(&self, keys: &[StringIdx]) -> Vec<StringIdx> {
        let mut seen = vec![0_u64; self.rows.div_ceil(u64::BITS) as usize];
        for key in keys {
            if let Some(word) = seen.get_mut(key.row() / 64) {
                *word |= 1 << (key.row() % 64);
            }
        }
        let mut distinct = Vec::new();
        for (position, mut word) in (0_u32..).zip(seen) {
            while word != 0 {
                distinct.push((position * u64::BITS + word.trailing_zeros()).into());
                word &= word - 1;
            }
        }
        distinct
    }

    fn walk(&self) -> Walk<'_, 'a> {
        Walk {
            texts: self,
            rows: fields(&[], dictionary::STRINGS),
            next: u32::MAX,
        }
    }
}

/// Walks the rows; cheapest in ascending order.
struct Walk<'t, 'a> {
    texts: &'t Texts<'a>,
    rows: Rows<'a>,
    /// The next row.
    next: u32,
}

impl<'a> Walk<'_, 'a> {
    fn get(&mut self, row: StringIdx) -> Option<&'a [u8]> {
        let (row, texts) = (row.get(), self.texts);
        if row >= texts.rows {
            return None;
        }
        let after = texts.marks.partition_point(|mark| mark.row <= row);
        let mark = texts.marks.get(after.checked_sub(1)?)?;
        if !(mark.row..=row).contains(&self.next) {
            let rest = texts.message.get(mark.at as usize..)?;
            self.rows = fields(rest, dictionary::STRINGS);
            self.next = mark.row;
        }
        let steps = row - self.next;
        self.next = row + 1;
        self.rows.nth(steps as usize)?.ok()
    }
}

#[cold]
fn replace(keys: &mut [StringIdx], texts: &[(&[u8], StringIdx)]) {
    let mut firsts = Vec::new();
    for same in texts.chunk_by(|one, other| one.0 == other.0) {
        firsts.extend(same.iter().map(|(_, key)| (*key, same[0].1)));
    }
    firsts.sort_unstable();
    for key in keys {
        if let Ok(position) = firsts.binary_search_by_key(key, |(key, _)| *key) {
            *key = firsts[position].1;
        }
    }
}
