//! Writer: appends fields to a buffer, and fills in the lengths of nested messages afterwards.
//!
//! Fields are identified by tags, as in reading.

use super::tag::{self, wire_type};

/// Appends fields. As in proto3, fields with default values are omitted, except by `_always` methods.
#[derive(Debug, Default)]
pub struct Writer {
    out: Vec<u8>,
}

impl Writer {
    pub fn with_capacity(bytes: usize) -> Self {
        Self {
            out: Vec::with_capacity(bytes),
        }
    }

    pub fn into_vec(self) -> Vec<u8> {
        self.out
    }

    /// Clears the buffer but keeps its capacity.
    pub fn clear(&mut self) {
        self.out.clear();
    }

    #[expect(clippy::len_without_is_empty, reason = "not needed")]
    pub fn len(&self) -> usize {
        self.out.len()
    }

    /// Appends already encoded fields.
    pub fn raw(&mut self, fields: &[u8]) {
        self.out.extend_from_slice(fields);
    }

    #[inline(always)]
    pub fn varint(&mut self, value: u64) {
        if value < 0x80 {
            self.out.push(value as u8);
        } else if value < 0x4000 {
            let bytes = [value as u8 | 0x80, (value >> 7) as u8];
            self.out.extend_from_slice(&bytes);
        } else {
            self.long_varint(value);
        }
    }

    fn long_varint(&mut self, mut value: u64) {
        let mut bytes = [0; 10];
        let mut len = 0;
        while value >= 0x80 {
            bytes[len] = value as u8 | 0x80;
            value >>= 7;
            len += 1;
        }
        bytes[len] = value as u8;
        self.out.extend_from_slice(&bytes[..=len]);
    }

    /// A number, index, flag or enum.
    #[inline(always)]
    pub fn uint(&mut self, tag: u32, value: u64) {
        if value != 0 {
            self.uint_always(tag, value);
        }
    }

    /// Like [`uint`](Self::uint), but writes 0 too.
    #[inline(always)]
    pub fn uint_always(&mut self, tag: u32, value: u64) {
        debug_assert_eq!(wire_type(tag), tag::VARINT);
        self.varint(u64::from(tag));
        self.varint(value);
    }

    #[inline(always)]
    pub fn int(&mut self, tag: u32, value: i64) {
        self.uint(tag, value.cast_unsigned());
    }

    pub fn fixed64(&mut self, tag: u32, value: u64) {
        if value != 0 {
            self.fixed64_always(tag, value);
        }
    }

    pub fn fixed64_always(&mut self, tag: u32, value: u64) {
        debug_assert_eq!(wire_type(tag), tag::FIXED64);
        self.varint(u64::from(tag));
        self.out.extend_from_slice(&value.to_le_bytes());
    }

    /// A string or bytes.
    pub fn bytes(&mut self, tag: u32, value: &[u8]) {
        if !value.is_empty() {
            self.bytes_always(tag, value);
        }
    }

    pub fn bytes_always(&mut self, tag: u32, value: &[u8]) {
        debug_assert_eq!(wire_type(tag), tag::LEN);
        self.varint(u64::from(tag));
        self.varint(value.len() as u64);
        self.out.extend_from_slice(value);
    }

    /// A packed list of varints.
    #[inline(always)]
    pub fn packed(&mut self, tag: u32, list: impl ExactSizeIterator<Item = u64>) {
        if list.len() != 0 {
            let expected = list.len();
            self.nested(tag, expected, |out| {
                list.for_each(|value| out.varint(value))
            });
        }
    }

    /// A packed list of `fixed64`.
    pub fn packed_fixed64(&mut self, tag: u32, list: &[u64]) {
        if !list.is_empty() {
            debug_assert_eq!(wire_type(tag), tag::LEN);
            self.varint(u64::from(tag));
            self.varint(8 * list.len() as u64);
            for value in list {
                self.out.extend_from_slice(&value.to_le_bytes());
            }
        }
    }

    /// A nested message, written even if empty. If its length takes as many bytes as `expected`, nothing has to be
    /// moved.
    #[inline(always)]
    pub fn nested(&mut self, tag: u32, expected: usize, write: impl FnOnce(&mut Self)) {
        debug_assert_eq!(wire_type(tag), tag::LEN);
        self.varint(u64::from(tag));
        let length_at = self.out.len();
        let reserved = varint_len(expected as u64);
        self.out.extend_from_slice(&[0; 10][..reserved]);
        write(self);
        self.fill_length(length_at, reserved);
    }

    #[inline(always)]
    fn fill_length(&mut self, length_at: usize, reserved: usize) {
        let body_at = length_at + reserved;
        let len = self.out.len() - body_at;
        if reserved == 1 && len < 0x80 {
            self.out[length_at] = len as u8;
            return;
        }
        self.fill_long_length(length_at, body_at, len);
    }

    #[inline(never)]
    fn fill_long_length(&mut self, length_at: usize, body_at: usize, len: usize) {
        let needed = varint_len(len as u64);
        let moved_to = length_at + needed;
        if moved_to > body_at {
            self.out.resize(moved_to + len, 0);
        }
        if moved_to != body_at {
            self.out.copy_within(body_at..body_at + len, moved_to);
            self.out.truncate(moved_to + len);
        }
        let mut rest = len;
        for byte in &mut self.out[length_at..moved_to] {
            *byte = rest as u8 | 0x80;
            rest >>= 7;
        }
        self.out[moved_to - 1] &= 0x7f;
    }
}

/// Encoded length of `value`.
#[inline(always)]
pub const fn varint_len(value: u64) -> usize {
    // Seven bits per byte: bits * 9 / 64 rounds up correctly for 1 to 64 bits.
    let bits = 64 - (value | 1).leading_zeros() as usize;
    (bits * 9 + 64) / 64
}
