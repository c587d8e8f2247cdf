//! The string table: one arena of text and the end of each string.

use std::ops::Range;

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

    /// Reserves capacity for more strings and their bytes.
    pub fn reserve(&mut self, strings: usize, bytes: usize) {
        self.ends.reserve(strings);
        self.text.reserve(bytes);
    }

    /// Appends a row, even if the same text exists.
    pub fn push(&mut self, text: &str) -> StringIdx {
        self.text.push_str(text);
        let end = u32::try_from(self.text.len()).expect("a batch is far below 4 GiB of text");
        self.ends.push(end);
        StringIdx::new(self.ends.len() as u32 - 1)
    }

    /// The text at `index`; empty if out of range.
    pub fn get(&self, index: StringIdx) -> &str {
        &self.text[self.range(index)]
    }

    /// Like [`get`](Self::get), for comparing and copying.
    #[inline(always)]
    pub(crate) fn bytes(&self, index: StringIdx) -> &[u8] {
        &self.text.as_bytes()[self.range(index)]
    }

    #[inline(always)]
    fn range(&self, index: StringIdx) -> Range<usize> {
        let Some(&end) = self.ends.get(index.row()) else {
            return 0..0;
        };
        let start = index.row().checked_sub(1).map_or(0, |row| self.ends[row]);
        start as usize..end as usize
    }

    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Always false: row 0 always exists.
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

    pub(crate) fn iter_bytes(&self) -> impl ExactSizeIterator<Item = &[u8]> {
        (0..self.len()).map(|row| self.bytes(StringIdx::new(row as u32)))
    }
}

/// Collects untrusted strings and checks UTF-8 for all at once.
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

    /// The table, if all strings are UTF-8.
    pub fn finish(self) -> Option<StringTable> {
        self.checked().ok()
    }

    /// The table; strings that are not UTF-8 become empty.
    pub fn finish_repaired(self) -> StringTable {
        match self.checked() {
            Ok(table) => table,
            Err(Self { text, ends }) => one_by_one(&text, &ends),
        }
    }

    fn checked(self) -> Result<StringTable, Self> {
        let Self { text, ends } = self;
        let are_separate = |text: &str| ends.iter().all(|&end| text.is_char_boundary(end as usize));
        match String::from_utf8(text) {
            Ok(text) if are_separate(&text) => Ok(StringTable { text, ends }),
            Ok(text) => Err(Self {
                text: text.into_bytes(),
                ends,
            }),
            Err(error) => Err(Self {
                text: error.into_bytes(),
                ends,
            }),
        }
    }
}

#[cold]
fn one_by_one(text: &[u8], ends: &[u32]) -> StringTable {
    let mut table = StringTable::with_capacity(ends.len(), text.len());
    for bounds in ends.windows(2) {
        let text = &text[bounds[0] as usize..bounds[1] as usize];
        table.push(std::str::from_utf8(text).unwrap_or_default());
    }
    table
}

#[cfg(test)]
mod tests {
    use super::StringTableBuilder;

    fn check(rows: &[&[u8]], expected: &[&str]) {
        let mut builder = StringTableBuilder::with_capacity(0, 0);
        rows.iter().for_each(|row| builder.push(row));
        let table = builder.finish_repaired();
        assert_eq!(table.iter().skip(1).collect::<Vec<_>>(), expected);
    }

    #[test]
    fn invalid_utf8_becomes_empty() {
        check(&[b"a", b"", "\u{e4}".as_bytes()], &["a", "", "\u{e4}"]);
        check(&[b"a", b"\xff", b"b"], &["a", "", "b"]);
        // Valid only when joined.
        check(&[b"a\xc3", b"\xa4b", b"c"], &["", "", "c"]);
    }
}
