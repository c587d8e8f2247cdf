//! `AnyValue` and `KeyValue`, one level at a time.

use super::fields::{Rows, fields};
use super::tags::{any_value as tags, key_value as pair, list};
use crate::StringIdx;
use crate::proto::{Reader, WireError, tag};

/// Maximum nesting of values.
pub const MAX_DEPTH: usize = 64;

/// A value with undecoded nested values.
pub enum AnyValue<'a> {
    Empty,
    String(&'a [u8]),
    StringIndex(StringIdx),
    Bool(bool),
    Int(i64),
    Double(f64),
    Bytes(&'a [u8]),
    Array(&'a [u8]),
    Map(&'a [u8]),
}

pub fn any_value(message: &[u8]) -> Result<AnyValue<'_>, WireError> {
    let mut value = AnyValue::Empty;
    let mut reader = Reader::new(message);
    while let Some(tag) = reader.tag()? {
        let read = match tag {
            tags::STRING => AnyValue::String(reader.bytes()?),
            tags::BOOL => AnyValue::Bool(reader.varint()? != 0),
            tags::INT => AnyValue::Int(reader.int64()?),
            tags::DOUBLE => AnyValue::Double(f64::from_bits(reader.fixed64()?)),
            tags::ARRAY => AnyValue::Array(reader.bytes()?),
            tags::MAP => AnyValue::Map(reader.bytes()?),
            tags::BYTES => AnyValue::Bytes(reader.bytes()?),
            tags::STRING_INDEX => AnyValue::StringIndex(reader.uint32()?.into()),
            unknown => {
                reader.skip(unknown, tags::KNOWN)?;
                continue;
            }
        };
        if !matches!(value, AnyValue::Empty) {
            let field = tag::field(tag);
            return Err(WireError::Twice { field });
        }
        value = read;
    }
    Ok(value)
}

/// The items of an array or a map.
pub fn items(message: &[u8]) -> Rows<'_> {
    fields(message, list::ITEMS)
}

/// A key, inline or as a string index, and an undecoded value.
#[derive(Default)]
pub struct Pair<'a> {
    pub key: &'a [u8],
    pub key_index: StringIdx,
    pub value: Option<&'a [u8]>,
}

pub fn key_value(message: &[u8]) -> Result<Pair<'_>, WireError> {
    let mut row = Pair::default();
    let mut reader = Reader::new(message);
    while let Some(tag) = reader.tag()? {
        match tag {
            pair::KEY => row.key = reader.bytes()?,
            pair::VALUE => set_once(&mut row.value, reader.bytes()?, tag)?,
            pair::KEY_INDEX => row.key_index = reader.uint32()?.into(),
            unknown => reader.skip(unknown, pair::KNOWN)?,
        }
    }
    Ok(row)
}

/// Protobuf would merge repeated occurrences; no sender does this, and rejecting it is simpler than a partial merge.
pub fn set_once<T>(slot: &mut Option<T>, value: T, tag: u32) -> Result<(), WireError> {
    if slot.replace(value).is_some() {
        let field = tag::field(tag);
        return Err(WireError::Twice { field });
    }
    Ok(())
}
