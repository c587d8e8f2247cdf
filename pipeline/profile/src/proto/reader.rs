//! Reader: a cursor over the bytes of one message.

use super::tag;

/// Protobuf decoding errors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WireError {
    #[error("message truncated in the middle of a field")]
    Truncated,
    #[error("varint exceeds 64 bits")]
    Overlong,
    #[error("invalid field tag")]
    BadTag,
    #[error("field {field} has unexpected wire type {wire_type}")]
    WrongType { field: u32, wire_type: u32 },
    #[error("field {field} is a group, which is not supported")]
    Group { field: u32 },
    #[error("duplicate field {field}")]
    Twice { field: u32 },
    #[error("message exceeds 4 GiB")]
    TooLong,
    #[error("text is not UTF-8")]
    NotUtf8,
    #[error("id of {len} bytes instead of {expected}")]
    IdLength { len: usize, expected: usize },
    #[error("values nested deeper than {limit} levels")]
    TooDeep { limit: usize },
}

/// A cursor over one message; nested messages have their own reader.
#[derive(Clone, Copy, Debug)]
pub struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub fn new(message: &'a [u8]) -> Self {
        Self { rest: message }
    }

    /// The unread bytes.
    pub fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// The next tag, or `None` at the end of the message.
    #[inline(always)]
    pub fn tag(&mut self) -> Result<Option<u32>, WireError> {
        let Some((&first, rest)) = self.rest.split_first() else {
            return Ok(None);
        };
        if first < 0x80 {
            self.rest = rest;
            return Ok(Some(u32::from(first)));
        }
        let tag = u32::try_from(self.varint()?).map_err(|_| WireError::BadTag)?;
        Ok(Some(tag))
    }

    #[inline(always)]
    pub fn varint(&mut self) -> Result<u64, WireError> {
        match self.rest {
            [first, rest @ ..] if *first < 0x80 => {
                self.rest = rest;
                Ok(u64::from(*first))
            }
            [first, second, rest @ ..] if *second < 0x80 => {
                self.rest = rest;
                Ok(u64::from(*first & 0x7f) | u64::from(*second) << 7)
            }
            _ => self.long_varint(),
        }
    }

    /// Three or more bytes: loads eight at once if available.
    #[inline(always)]
    fn long_varint(&mut self) -> Result<u64, WireError> {
        let Some(eight) = self.rest.first_chunk::<8>() else {
            return self.any_varint();
        };
        let word = u64::from_le_bytes(*eight);
        let ends = !word & 0x8080_8080_8080_8080;
        if ends == 0 {
            return self.any_varint();
        }
        // Mask all bits up to the end, then join groups of 7 bits to 14, 28 and 56.
        let last = ends & ends.wrapping_neg();
        let word = word & (last | (last - 1)) & 0x7f7f_7f7f_7f7f_7f7f;
        let word = word & 0x007f_007f_007f_007f | (word & 0x7f00_7f00_7f00_7f00) >> 1;
        let word = word & 0x0000_3fff_0000_3fff | (word & 0x3fff_0000_3fff_0000) >> 2;
        let word = word & 0x0fff_ffff | (word & 0x0fff_ffff_0000_0000) >> 4;
        let len = last.trailing_zeros() as usize / 8 + 1;
        self.rest = &self.rest[len..];
        Ok(word)
    }

    #[inline(never)]
    fn any_varint(&mut self) -> Result<u64, WireError> {
        let mut value = 0;
        for (position, &byte) in self.rest.iter().enumerate() {
            // The tenth byte holds the 64th bit and nothing else.
            if position == 9 && byte > 1 {
                return Err(WireError::Overlong);
            }
            value |= u64::from(byte & 0x7f) << (7 * position);
            if byte < 0x80 {
                self.rest = &self.rest[position + 1..];
                return Ok(value);
            }
        }
        Err(WireError::Truncated)
    }

    /// An `int32`, `uint32` or index, truncated as in all parsers.
    #[inline(always)]
    pub fn uint32(&mut self) -> Result<u32, WireError> {
        Ok(self.varint()? as u32)
    }

    #[inline(always)]
    pub fn int64(&mut self) -> Result<i64, WireError> {
        Ok(self.varint()?.cast_signed())
    }

    #[inline(always)]
    pub fn fixed64(&mut self) -> Result<u64, WireError> {
        let (bytes, rest) = self
            .rest
            .split_first_chunk::<8>()
            .ok_or(WireError::Truncated)?;
        self.rest = rest;
        Ok(u64::from_le_bytes(*bytes))
    }

    /// A string, bytes, a nested message or a packed list.
    #[inline(always)]
    pub fn bytes(&mut self) -> Result<&'a [u8], WireError> {
        let len = usize::try_from(self.varint()?).map_err(|_| WireError::Truncated)?;
        let (bytes, rest) = self
            .rest
            .split_at_checked(len)
            .ok_or(WireError::Truncated)?;
        self.rest = rest;
        Ok(bytes)
    }

    /// Skips the next tag if it is this single-byte one.
    #[inline(always)]
    pub fn next_is(&mut self, tag: u32) -> bool {
        match self.rest {
            [first, rest @ ..] if u32::from(*first) == tag => {
                self.rest = rest;
                true
            }
            _ => false,
        }
    }

    pub fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// Whether this reader is at the position of an earlier copy.
    pub fn is_at(&self, earlier: Self) -> bool {
        self.rest.len() == earlier.rest.len()
    }

    /// Skips the next field if none was read since `earlier`; see [`skip`](Self::skip).
    #[inline(always)]
    pub fn skip_unless_moved(&mut self, earlier: Self, known: u32) -> Result<(), WireError> {
        if self.is_at(earlier)
            && let Some(unknown) = self.tag()?
        {
            self.skip(unknown, known)?;
        }
        Ok(())
    }

    /// Reads consecutive fields with the same tag, after the first tag was read; returns their number.
    #[inline(always)]
    pub fn run(&mut self, tag: u32, mut each: impl FnMut(&'a [u8])) -> Result<u32, WireError> {
        let mut fields = 0;
        loop {
            each(self.bytes()?);
            fields += 1;
            if !self.next_is(tag) {
                return Ok(fields);
            }
        }
    }

    /// Like [`run`](Self::run), but skips the fields.
    #[inline(never)]
    pub fn skip_run(&mut self, tag: u32) -> Result<u32, WireError> {
        // Moving a position is cheaper than a slice.
        let (mut fields, mut at) = (0, 0);
        loop {
            match self.rest.get(at) {
                Some(&len @ 0..0x80) => at += 1 + usize::from(len),
                _ => {
                    self.rest = self.rest.get(at..).ok_or(WireError::Truncated)?;
                    self.bytes()?;
                    at = 0;
                }
            }
            fields += 1;
            match self.rest.get(at) {
                Some(&next) if u32::from(next) == tag => at += 1,
                _ => break,
            }
        }
        self.rest = self.rest.get(at..).ok_or(WireError::Truncated)?;
        Ok(fields)
    }

    pub fn message(&mut self) -> Result<Self, WireError> {
        Ok(Self::new(self.bytes()?))
    }

    /// Appends a packed list of 32-bit varints.
    #[inline(always)]
    pub fn packed_uint32<T: From<u32>>(&mut self, list: &mut Vec<T>) -> Result<(), WireError> {
        let mut packed = Self::new(self.bytes()?);
        if packed.rest.len() >= 8 {
            packed.max_uint32(list)?;
        }
        while !packed.rest.is_empty() {
            list.push(T::from(packed.uint32()?));
        }
        Ok(())
    }

    /// Reads all but the last few items of a packed list.
    #[inline(never)]
    fn max_uint32<T: From<u32>>(&mut self, list: &mut Vec<T>) -> Result<(), WireError> {
        /// The continuation bits of eight bytes, and of four varints of two bytes.
        const CONTINUED: u64 = 0x8080_8080_8080_8080;
        const FOUR_TWO_BYTE_VARINTS: u64 = 0x0080_0080_0080_0080;

        list.reserve(self.rest.len());
        while let Some((eight, rest)) = self.rest.split_first_chunk::<8>() {
            let word = u64::from_le_bytes(*eight);
            match word & CONTINUED {
                0 => {
                    list.extend(eight.map(|byte| T::from(u32::from(byte))));
                    self.rest = rest;
                }
                FOUR_TWO_BYTE_VARINTS => {
                    let lanes = word & 0x007f_007f_007f_007f | word >> 1 & 0x3f80_3f80_3f80_3f80;
                    let lane = |shift| T::from(u32::from((lanes >> shift) as u16));
                    list.extend([lane(0), lane(16), lane(32), lane(48)]);
                    self.rest = rest;
                }
                _ => list.push(T::from(self.uint32()?)),
            }
        }
        Ok(())
    }

    /// Appends a packed list of 64-bit varints.
    #[inline(always)]
    pub fn packed_int64(&mut self, list: &mut Vec<i64>) -> Result<(), WireError> {
        let mut packed = self.message()?;
        while !packed.rest.is_empty() {
            list.push(packed.int64()?);
        }
        Ok(())
    }

    /// Appends a packed list of `fixed64`.
    #[inline(always)]
    pub fn packed_fixed64(&mut self, list: &mut Vec<u64>) -> Result<(), WireError> {
        let (numbers, cut) = self.bytes()?.as_chunks::<8>();
        if !cut.is_empty() {
            return Err(WireError::Truncated);
        }
        list.extend(numbers.iter().map(|bytes| u64::from_le_bytes(*bytes)));
        Ok(())
    }

    /// Skips an unknown field; a tag of the fields `1..=known` gets here only if its wire type is wrong.
    #[cold]
    #[inline(never)]
    pub fn skip(&mut self, tag: u32, known: u32) -> Result<(), WireError> {
        let field = tag::field(tag);
        let wire_type = tag::wire_type(tag);
        match wire_type {
            _ if field == 0 => return Err(WireError::BadTag),
            3 | 4 => return Err(WireError::Group { field }),
            _ if field <= known => return Err(WireError::WrongType { field, wire_type }),
            tag::VARINT => drop(self.varint()?),
            tag::FIXED64 => drop(self.fixed64()?),
            tag::LEN => drop(self.bytes()?),
            tag::FIXED32 => {
                self.rest = self.rest.get(4..).ok_or(WireError::Truncated)?;
            }
            _ => return Err(WireError::BadTag),
        }
        Ok(())
    }
}
