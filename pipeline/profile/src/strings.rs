//! The string table: one arena of text and where each string ends.

use crate::StringIdx;

/// All strings of a batch; row 0 is the empty string.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StringTable {
    text: String,
    ends: Vec<u32>,
}

impl Default for StringTable {
    fn default() -> Self {
        Self {
            text: String::new(),
            ends: vec![0],
        }
    }
}

impl StringTable {
    pub fn with_capacity(strings: usize, bytes: usize) -> Self {
        let mut ends = Vec::with_capacity(strings.max(1));
        ends.push(0);
        Self {
            text: String::with_capacity(bytes),
            ends,
        }
    }

    /// Makes room for more strings, and for bytes in all of them.
    pub fn reserve(&mut self, strings: usize, bytes: usize) {
        self.ends.reserve(strings);
        self.text.reserve(bytes);
    }

    /// Appends a row, also when the same text stands in the table already.
    pub fn push(&mut self, text: &str) -> StringIdx {
        self.text.push_str(text);
        let end = u32::try_from(self.text.len()).expect("a batch is far below 4 GiB of text");
        self.ends.push(end);
        StringIdx::new(self.ends.len() as u32 - 1)
    }

    /// The text at `index`; empty where the index is out of range.
    pub fn get(&self, index: StringIdx) -> &str {
        let Some(&end) = self.ends.get(index.row()) else {
            return "";
        };
        let start = index.row().checked_sub(1).map_or(0, |row| self.ends[row]);
        &self.text[start as usize..end as usize]
    }

    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Never: row 0 is always there.
    pub fn is_empty(&self) -> bool {
        false
    }

    /// Bytes of text in all rows.
    pub fn text_len(&self) -> usize {
        self.text.len()
    }

    pub fn iter(&self) -> impl ExactSizeIterator<Item = &str> {
        (0..self.len()).map(|row| self.get(StringIdx::new(row as u32)))
    }
}

/// Collects strings that are known to be UTF-8 one by one, so that they need only be checked as a
/// whole.
pub(crate) struct StringTableBuilder {
    text: Vec<u8>,
    ends: Vec<u32>,
}

impl StringTableBuilder {
    pub fn with_capacity(strings: usize, bytes: usize) -> Self {
        let mut ends = Vec::with_capacity(strings.max(1));
        ends.push(0);
        Self {
            text: Vec::with_capacity(bytes),
            ends,
        }
    }

    #[inline(always)]
    pub fn push(&mut self, text: &[u8]) {
        self.text.extend_from_slice(text);
        self.ends.push(self.text.len() as u32);
    }

    pub fn finish(self) -> StringTable {
        StringTable {
            text: String::from_utf8(self.text).expect("each of the strings is UTF-8"),
            ends: self.ends,
        }
    }
}
