//! Wire tags: field number and wire type.

pub(crate) const VARINT: u32 = 0;
pub(crate) const FIXED64: u32 = 1;
pub const LEN: u32 = 2;
pub(crate) const FIXED32: u32 = 5;

pub const fn varint(field: u32) -> u32 {
    field << 3 | VARINT
}

pub const fn fixed64(field: u32) -> u32 {
    field << 3 | FIXED64
}

/// Strings, bytes, messages and packed lists.
pub const fn len(field: u32) -> u32 {
    field << 3 | LEN
}

pub const fn field(tag: u32) -> u32 {
    tag >> 3
}

pub const fn wire_type(tag: u32) -> u32 {
    tag & 7
}
