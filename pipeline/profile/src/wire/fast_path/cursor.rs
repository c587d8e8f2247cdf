//! A cursor over a message in the common encoding.
//!
//! Every method returns `None` for unusual as well as invalid input: overlong tags and small numbers, truncated
//! messages. Nested messages have no cursor of their own: enter them, and leave them at their end.

use crate::proto::Reader;

const CONTINUED: u64 = 0x8080_8080_8080_8080;

/// The end of the enclosing message.
pub(super) struct EnclosingEnd(usize);

#[derive(Clone, Copy)]
pub(super) struct Cursor<'a> {
    bytes: &'a [u8],
    pub at: usize,
    /// The end of the current message.
    end: usize,
}

impl<'a> Cursor<'a> {
    pub fn new(bytes: &'a [u8]) -> Self {
        Self {
            bytes,
            at: 0,
            end: bytes.len(),
        }
    }

    pub fn is_at_end(&self) -> bool {
        self.at == self.end
    }

    /// Enters a nested message; returns the token for leaving it.
    #[inline(always)]
    pub fn enter(&mut self) -> Option<EnclosingEnd> {
        let end = self.end()?;
        Some(EnclosingEnd(std::mem::replace(&mut self.end, end)))
    }

    /// Leaves a nested message, which must be read to its end.
    #[inline(always)]
    pub fn leave(&mut self, outer: EnclosingEnd) -> Option<()> {
        let read = self.is_at_end();
        self.end = outer.0;
        read.then_some(())
    }

    /// The bytes from here to a later position.
    #[inline(always)]
    pub fn slice_to(&self, end: usize) -> Option<&'a [u8]> {
        self.bytes.get(self.at..end)
    }

    /// Skips the next tag if it is this one.
    #[inline(always)]
    pub fn next_is(&mut self, tag: u32) -> bool {
        if self.peek() != Some(tag) || self.at >= self.end {
            return false;
        }
        self.at += 1;
        true
    }

    #[inline(always)]
    pub fn peek(&self) -> Option<u32> {
        self.bytes.get(self.at).map(|&byte| u32::from(byte))
    }

    /// Reads a length; returns the position of the end.
    #[inline(always)]
    pub fn end(&mut self) -> Option<usize> {
        let len = self.mostly_single_byte()?;
        let end = self.at + len as usize;
        (end <= self.end).then_some(end)
    }

    /// A string, bytes or a packed list.
    #[inline(always)]
    pub fn slice(&mut self) -> Option<&'a [u8]> {
        let end = self.end()?;
        let slice = self.slice_to(end);
        self.at = end;
        slice
    }

    /// A number below 2^28, such as an index: at most four bytes; the last has no continuation bit. The mask
    /// keeps the bytes up to that one, and the shifts drop the continuation bits.
    #[inline(always)]
    pub fn small(&mut self) -> Option<u32> {
        let word = self.word() as u32;
        let ends = !word & CONTINUED as u32;
        if ends == 0 {
            return None;
        }
        self.at += ends.trailing_zeros() as usize / 8 + 1;
        let word = word & (ends ^ (ends - 1));
        Some(word & 0x7f | word >> 1 & 0x7f << 7 | word >> 2 & 0x7f << 14 | word >> 3 & 0x7f << 21)
    }

    /// A number below 2^28 that is likely to be below 2^7.
    #[inline(always)]
    pub fn mostly_single_byte(&mut self) -> Option<u32> {
        match self.bytes.get(self.at) {
            Some(&tiny) if tiny < 0x80 => {
                self.at += 1;
                Some(u32::from(tiny))
            }
            _ => self.small(),
        }
    }

    /// Two numbers between 2^7 and 2^14 in these fields, as in most rows.
    #[inline(always)]
    pub fn pair(&mut self, first: u32, second: u32) -> Option<(u32, u32)> {
        const TAGS_AND_CONTINUED: u64 = 0x8080_ff80_80ff;
        const CONTINUED_ONCE: u64 = 0x0080_0000_8000;

        let word = self.word();
        let tags = u64::from(first) | u64::from(second) << 24;
        if word & TAGS_AND_CONTINUED != CONTINUED_ONCE | tags {
            return None;
        }
        self.at += 6;
        let number = |word: u64| (word & 0x7f | word >> 1 & 0x3f80) as u32;
        Some((number(word >> 8), number(word >> 32)))
    }

    /// Any number.
    #[inline(always)]
    pub fn number(&mut self) -> Option<u64> {
        let rest = self.bytes.get(self.at..)?;
        let mut reader = Reader::new(rest);
        let number = reader.varint().ok()?;
        self.at += rest.len() - reader.rest().len();
        Some(number)
    }

    /// Skips a number.
    #[inline(always)]
    pub fn skip_number(&mut self) -> Option<()> {
        let ends = !self.word() & CONTINUED;
        if ends == 0 {
            return self.number().map(drop);
        }
        self.at += ends.trailing_zeros() as usize / 8 + 1;
        Some(())
    }

    /// Skips a non-negative number.
    #[inline(always)]
    pub fn skip_natural(&mut self) -> Option<()> {
        let ends = !self.word() & CONTINUED;
        if ends == 0 {
            return (!self.number()?.cast_signed().is_negative()).then_some(());
        }
        self.at += ends.trailing_zeros() as usize / 8 + 1;
        Some(())
    }

    /// The next eight bytes, padded so that no number ends beyond the last one.
    #[inline(always)]
    fn word(&self) -> u64 {
        let rest = self.bytes.get(self.at..).unwrap_or_default();
        match rest.first_chunk::<8>() {
            Some(eight) => u64::from_le_bytes(*eight),
            None => last_word(rest),
        }
    }
}

#[cold]
#[inline(never)]
fn last_word(rest: &[u8]) -> u64 {
    let mut word = u64::MAX;
    for &byte in rest.iter().rev() {
        word = word << 8 | u64::from(byte);
    }
    word
}

/// The highest number of a packed list of numbers below 2^28; 0 if it is empty.
///
/// Numbers below 2^14 are decoded at every end position, uniformly and without branches.
#[inline(always)]
pub(super) fn highest(list: &[u8]) -> Option<u32> {
    let Some((&last, before)) = list.split_last() else {
        return Some(0);
    };
    let first = list.first().map_or(0, |&first| ending(0, first));
    let (mut highest, mut long) = (first, 0);
    for (&before, &byte) in before.iter().zip(&list[1..]) {
        long |= before & byte;
        highest = highest.max(ending(before, byte));
    }
    if (long | last) & 0x80 != 0 {
        return highest_of_long(list);
    }
    Some(u32::from(highest))
}

/// The number of one or two bytes that ends with `byte`; 0 if none does.
#[inline(always)]
fn ending(before: u8, byte: u8) -> u16 {
    let continued = u16::from(before >> 7);
    let low = u16::from(before & 0x7f) * continued;
    let number = u16::from(byte) << (7 * continued) | low;
    if byte < 0x80 { number } else { 0 }
}

#[inline(never)]
fn highest_of_long(list: &[u8]) -> Option<u32> {
    let mut cursor = Cursor::new(list);
    let mut highest = 0;
    while !cursor.is_at_end() {
        highest = highest.max(cursor.small()?);
    }
    Some(highest)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::highest;
    use crate::proto::Writer;

    proptest! {
        #[test]
        fn finds_the_highest_of_any_list(
            rows in prop::collection::vec((0_u32..1 << 28, 0..28), 0..60),
        ) {
            let rows: Vec<u32> = rows.into_iter().map(|(row, bits)| row >> bits).collect();
            let mut list = Writer::default();
            for &row in &rows {
                list.varint(u64::from(row));
            }
            let expected = rows.into_iter().max().unwrap_or(0);
            prop_assert_eq!(highest(&list.into_vec()), Some(expected));
        }
    }

    #[test]
    fn a_truncated_or_too_high_list_has_none() {
        for list in [
            &[0x80][..],
            &[1, 0x80],
            &[0x80, 0x80],
            &[1, 0x80, 0x80],
            &[0x80, 0x80, 0x80, 0x80, 1],
        ] {
            assert_eq!(highest(list), None, "{list:?}");
        }
    }
}
