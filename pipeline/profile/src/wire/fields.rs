//! The occurrences of a field in a message, such as the rows of a table.

use crate::proto::{Reader, WireError};

/// The rows of one table.
pub struct Rows<'a> {
    reader: Reader<'a>,
    table: u32,
}

impl<'a> Iterator for Rows<'a> {
    type Item = Result<&'a [u8], WireError>;

    #[inline(always)]
    fn next(&mut self) -> Option<Self::Item> {
        if self.reader.next_is(self.table) {
            return Some(self.reader.bytes());
        }
        self.search()
    }
}

impl<'a> Rows<'a> {
    /// The number of bytes after the rows that were taken.
    pub fn bytes_left(&self) -> usize {
        self.reader.rest().len()
    }

    /// Finds the next row after other fields.
    #[inline(never)]
    fn search(&mut self) -> Option<Result<&'a [u8], WireError>> {
        loop {
            match self.reader.tag() {
                Ok(Some(tag)) if tag == self.table => return Some(self.reader.bytes()),
                Ok(Some(other)) => {
                    if let Err(error) = self.reader.skip(other, 0) {
                        return Some(Err(error));
                    }
                }
                Ok(None) => return None,
                Err(error) => return Some(Err(error)),
            }
        }
    }
}

/// The fields `tag` of a message; others are skipped.
pub fn fields(message: &[u8], tag: u32) -> Rows<'_> {
    Rows {
        reader: Reader::new(message),
        table: tag,
    }
}
