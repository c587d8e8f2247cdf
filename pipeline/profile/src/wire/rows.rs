//! Rows of tables and samples, read one at a time into plain values and reused lists.
//!
//! Frequent rows are read by probing fields in their usual order: well-predicted branches, where a `match` over tags
//! would be an indirect jump per field. Other orders take another round.

use super::tags::{
    attribute as attribute_tags, function as function_tags, line as line_tags, link as link_tags,
    location as location_tags, mapping as mapping_tags, sample as sample_tags, stack as stack_tags,
    value_type as value_type_tags,
};
use super::value::set_once;
use crate::proto::{Reader, WireError};
use crate::{
    AttributeIdx, Function, Line, LinkIdx, Location, LocationIdx, Mapping, StackIdx, StringIdx,
    ValueType,
};

/// The lists of the last row, reused to avoid allocations per row.
#[derive(Default)]
pub struct RowLists {
    pub attributes: Vec<AttributeIdx>,
    pub locations: Vec<LocationIdx>,
    pub lines: Vec<Line>,
    pub values: Vec<i64>,
    pub timestamps: Vec<u64>,
}

/// The scalar fields of a sample.
#[derive(Default)]
pub struct SampleHead {
    pub stack: StackIdx,
    pub link: LinkIdx,
    /// Field 3 is a list, as in proto 1.9 and earlier.
    pub has_old_attributes: bool,
}

#[inline(always)]
pub fn sample(message: &[u8], lists: &mut RowLists) -> Result<SampleHead, WireError> {
    let mut head = SampleHead::default();
    lists.attributes.clear();
    lists.values.clear();
    lists.timestamps.clear();
    let mut reader = Reader::new(message);
    while !reader.is_empty() {
        let before = reader;
        if reader.next_is(sample_tags::STACK) {
            head.stack = reader.uint32()?.into();
        }
        if reader.next_is(sample_tags::ATTRIBUTES) {
            reader.packed_uint32(&mut lists.attributes)?;
        }
        if reader.next_is(sample_tags::LINK) {
            head.link = reader.uint32()?.into();
        }
        if reader.next_is(sample_tags::VALUES) {
            reader.packed_int64(&mut lists.values)?;
        }
        if reader.next_is(sample_tags::TIMESTAMPS) {
            reader.packed_fixed64(&mut lists.timestamps)?;
        }
        if reader.is_at(before) {
            unusual_sample_field(&mut reader, &mut head, lists)?;
        }
    }
    Ok(head)
}

#[cold]
fn unusual_sample_field(
    reader: &mut Reader<'_>,
    head: &mut SampleHead,
    lists: &mut RowLists,
) -> Result<(), WireError> {
    match reader.tag()? {
        Some(sample_tags::ATTRIBUTE) => lists.attributes.push(reader.uint32()?.into()),
        Some(sample_tags::VALUE) => lists.values.push(reader.int64()?),
        Some(sample_tags::TIMESTAMP) => lists.timestamps.push(reader.fixed64()?),
        Some(sample_tags::OLD_ATTRIBUTES) => {
            head.has_old_attributes = true;
            reader.bytes()?;
        }
        Some(unknown) => reader.skip(unknown, sample_tags::KNOWN)?,
        None => {}
    }
    Ok(())
}

pub fn mapping(message: &[u8], lists: &mut RowLists) -> Result<Mapping, WireError> {
    let mut row = Mapping::default();
    lists.attributes.clear();
    let mut reader = Reader::new(message);
    while let Some(tag) = reader.tag()? {
        match tag {
            mapping_tags::START => row.memory_start = reader.varint()?,
            mapping_tags::LIMIT => row.memory_limit = reader.varint()?,
            mapping_tags::OFFSET => row.file_offset = reader.varint()?,
            mapping_tags::FILENAME => row.filename = reader.uint32()?.into(),
            mapping_tags::ATTRIBUTES => reader.packed_uint32(&mut lists.attributes)?,
            mapping_tags::ATTRIBUTE => lists.attributes.push(reader.uint32()?.into()),
            unknown => reader.skip(unknown, mapping_tags::KNOWN)?,
        }
    }
    Ok(row)
}

#[inline(always)]
pub fn location(message: &[u8], lists: &mut RowLists) -> Result<Location, WireError> {
    let mut row = Location::default();
    lists.lines.clear();
    lists.attributes.clear();
    let mut reader = Reader::new(message);
    while !reader.is_empty() {
        let before = reader;
        if reader.next_is(location_tags::MAPPING) {
            row.mapping = reader.uint32()?.into();
        }
        if reader.next_is(location_tags::ADDRESS) {
            row.address = reader.varint()?;
        }
        while reader.next_is(location_tags::LINES) {
            lists.lines.push(line(reader.bytes()?)?);
        }
        if reader.next_is(location_tags::ATTRIBUTES) {
            reader.packed_uint32(&mut lists.attributes)?;
        }
        if reader.is_at(before) {
            match reader.tag()? {
                Some(location_tags::ATTRIBUTE) => lists.attributes.push(reader.uint32()?.into()),
                Some(unknown) => reader.skip(unknown, location_tags::KNOWN)?,
                None => {}
            }
        }
    }
    Ok(row)
}

#[inline(always)]
fn line(message: &[u8]) -> Result<Line, WireError> {
    let mut row = Line::default();
    let mut reader = Reader::new(message);
    while !reader.is_empty() {
        let before = reader;
        if reader.next_is(line_tags::FUNCTION) {
            row.function = reader.uint32()?.into();
        }
        if reader.next_is(line_tags::LINE) {
            row.line = reader.int64()?;
        }
        if reader.next_is(line_tags::COLUMN) {
            row.column = reader.int64()?;
        }
        reader.skip_unless_moved(before, line_tags::KNOWN)?;
    }
    Ok(row)
}

#[inline(always)]
pub fn function(message: &[u8]) -> Result<Function, WireError> {
    let mut row = Function::default();
    let mut reader = Reader::new(message);
    while !reader.is_empty() {
        let before = reader;
        if reader.next_is(function_tags::NAME) {
            row.name = reader.uint32()?.into();
        }
        if reader.next_is(function_tags::SYSTEM_NAME) {
            row.system_name = reader.uint32()?.into();
        }
        if reader.next_is(function_tags::FILENAME) {
            row.filename = reader.uint32()?.into();
        }
        if reader.next_is(function_tags::START_LINE) {
            row.start_line = reader.int64()?;
        }
        reader.skip_unless_moved(before, function_tags::KNOWN)?;
    }
    Ok(row)
}

#[inline(always)]
pub fn stack(message: &[u8], lists: &mut RowLists) -> Result<(), WireError> {
    lists.locations.clear();
    let mut reader = Reader::new(message);
    while let Some(tag) = reader.tag()? {
        match tag {
            stack_tags::LOCATIONS => reader.packed_uint32(&mut lists.locations)?,
            stack_tags::LOCATION => lists.locations.push(reader.uint32()?.into()),
            unknown => reader.skip(unknown, stack_tags::KNOWN)?,
        }
    }
    Ok(())
}

/// The ids of a link, of any length.
#[derive(Default)]
pub struct LinkRow<'a> {
    pub trace_id: &'a [u8],
    pub span_id: &'a [u8],
}

pub fn link(message: &[u8]) -> Result<LinkRow<'_>, WireError> {
    let mut row = LinkRow::default();
    let mut reader = Reader::new(message);
    while let Some(tag) = reader.tag()? {
        match tag {
            link_tags::TRACE_ID => row.trace_id = reader.bytes()?,
            link_tags::SPAN_ID => row.span_id = reader.bytes()?,
            unknown => reader.skip(unknown, link_tags::KNOWN)?,
        }
    }
    Ok(row)
}

/// A key, an undecoded value, and a unit.
#[derive(Default)]
pub struct AttributeRow<'a> {
    pub key: StringIdx,
    pub value: Option<&'a [u8]>,
    pub unit: StringIdx,
}

pub fn attribute(message: &[u8]) -> Result<AttributeRow<'_>, WireError> {
    let mut row = AttributeRow::default();
    let mut reader = Reader::new(message);
    while let Some(tag) = reader.tag()? {
        match tag {
            attribute_tags::KEY => row.key = reader.uint32()?.into(),
            attribute_tags::VALUE => set_once(&mut row.value, reader.bytes()?, tag)?,
            attribute_tags::UNIT => row.unit = reader.uint32()?.into(),
            unknown => reader.skip(unknown, attribute_tags::KNOWN)?,
        }
    }
    Ok(row)
}

pub fn value_type(message: &[u8]) -> Result<ValueType, WireError> {
    let mut row = ValueType::default();
    let mut reader = Reader::new(message);
    while let Some(tag) = reader.tag()? {
        match tag {
            value_type_tags::KIND => row.kind = reader.uint32()?.into(),
            value_type_tags::UNIT => row.unit = reader.uint32()?.into(),
            unknown => reader.skip(unknown, value_type_tags::KNOWN)?,
        }
    }
    Ok(row)
}
