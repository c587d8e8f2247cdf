//! The tables of the dictionary.

use std::mem;

use serde::de::MapAccess;

use super::bytes::id_from_hex;
use super::list::{Indices, Texts};
use super::object::{Field, Message};
use profcol_profile::{
    Attribute, AttributeIdx, Dictionary, Function, Line, Link, Location, LocationIdx, LocationRef,
    Mapping, MappingRef, StringTable, ValueType,
};

/// Reads only the strings of a dictionary.
pub(super) struct Strings<'a>(pub &'a mut StringTable);

impl Message for Strings<'_> {
    fn read<'de, M: MapAccess<'de>>(
        &mut self,
        name: &str,
        field: Field<'_, M>,
    ) -> Result<(), M::Error> {
        match name {
            "stringTable" => field.list(Texts(|position, text: &str| {
                if position > 0 {
                    self.0.push(text);
                } else if !text.is_empty() {
                    return Err("the first string must be empty".to_owned());
                }
                Ok(())
            })),
            _ => field.skip(),
        }
    }
}

/// All tables except the strings, which were read before.
impl Message for Dictionary {
    fn read<'de, M: MapAccess<'de>>(
        &mut self,
        name: &str,
        field: Field<'_, M>,
    ) -> Result<(), M::Error> {
        match name {
            "mappingTable" => field.table(&mut MappingRow::default(), |row| {
                self.mappings.push(MappingRef {
                    mapping: mem::take(&mut row.mapping),
                    attributes: &row.attributes,
                });
                row.attributes.clear();
            }),
            "locationTable" => field.table(&mut LocationRow::default(), |row| {
                self.locations.push(LocationRef {
                    location: mem::take(&mut row.location),
                    lines: &row.lines,
                    attributes: &row.attributes,
                });
                row.lines.clear();
                row.attributes.clear();
            }),
            "functionTable" => field.table(&mut Function::default(), |row| {
                self.functions.push(mem::take(row));
            }),
            "linkTable" => field.table(&mut Link::default(), |row| {
                self.links.push(mem::take(row));
            }),
            "attributeTable" => field.table(&mut Attribute::default(), |row| {
                self.attributes.push(mem::take(row));
            }),
            "stackTable" => field.table(&mut StackRow::default(), |row| {
                self.stacks.push(&row.0);
                row.0.clear();
            }),
            _ => field.skip(),
        }
    }
}

#[derive(Default, PartialEq)]
struct MappingRow {
    mapping: Mapping,
    attributes: Vec<AttributeIdx>,
}

impl Message for MappingRow {
    fn read<'de, M: MapAccess<'de>>(
        &mut self,
        name: &str,
        field: Field<'_, M>,
    ) -> Result<(), M::Error> {
        let mapping = &mut self.mapping;
        match name {
            "memoryStart" => field.whole(&mut mapping.memory_start),
            "memoryLimit" => field.whole(&mut mapping.memory_limit),
            "fileOffset" => field.whole(&mut mapping.file_offset),
            "filenameStrindex" => field.index(&mut mapping.filename),
            "attributeIndices" => field.list(Indices(&mut self.attributes)),
            _ => field.skip(),
        }
    }
}

#[derive(Default, PartialEq)]
struct LocationRow {
    location: Location,
    lines: Vec<Line>,
    attributes: Vec<AttributeIdx>,
}

impl Message for LocationRow {
    fn read<'de, M: MapAccess<'de>>(
        &mut self,
        name: &str,
        field: Field<'_, M>,
    ) -> Result<(), M::Error> {
        match name {
            "mappingIndex" => field.index(&mut self.location.mapping),
            "address" => field.whole(&mut self.location.address),
            "lines" => field.rows(&mut Line::default(), |line| {
                self.lines.push(mem::take(line));
            }),
            "attributeIndices" => field.list(Indices(&mut self.attributes)),
            _ => field.skip(),
        }
    }
}

#[derive(Default, PartialEq)]
struct StackRow(Vec<LocationIdx>);

impl Message for StackRow {
    fn read<'de, M: MapAccess<'de>>(
        &mut self,
        name: &str,
        field: Field<'_, M>,
    ) -> Result<(), M::Error> {
        match name {
            "locationIndices" => field.list(Indices(&mut self.0)),
            _ => field.skip(),
        }
    }
}

impl Message for Line {
    fn read<'de, M: MapAccess<'de>>(
        &mut self,
        name: &str,
        field: Field<'_, M>,
    ) -> Result<(), M::Error> {
        match name {
            "functionIndex" => field.index(&mut self.function),
            "line" => field.whole(&mut self.line),
            "column" => field.whole(&mut self.column),
            _ => field.skip(),
        }
    }
}

impl Message for Function {
    fn read<'de, M: MapAccess<'de>>(
        &mut self,
        name: &str,
        field: Field<'_, M>,
    ) -> Result<(), M::Error> {
        match name {
            "nameStrindex" => field.index(&mut self.name),
            "systemNameStrindex" => field.index(&mut self.system_name),
            "filenameStrindex" => field.index(&mut self.filename),
            "startLine" => field.whole(&mut self.start_line),
            _ => field.skip(),
        }
    }
}

impl Message for Link {
    fn read<'de, M: MapAccess<'de>>(
        &mut self,
        name: &str,
        field: Field<'_, M>,
    ) -> Result<(), M::Error> {
        match name {
            "traceId" => {
                self.trace_id = field.parsed(id_from_hex)?.flatten().unwrap_or_default();
            }
            "spanId" => {
                self.span_id = field.parsed(id_from_hex)?.flatten().unwrap_or_default();
            }
            _ => field.skip()?,
        }
        Ok(())
    }
}

impl Message for Attribute {
    fn read<'de, M: MapAccess<'de>>(
        &mut self,
        name: &str,
        field: Field<'_, M>,
    ) -> Result<(), M::Error> {
        match name {
            "keyStrindex" => field.index(&mut self.key),
            "value" => field.message(&mut self.value).map(drop),
            "unitStrindex" => field.index(&mut self.unit),
            _ => field.skip(),
        }
    }
}

impl Message for ValueType {
    fn read<'de, M: MapAccess<'de>>(
        &mut self,
        name: &str,
        field: Field<'_, M>,
    ) -> Result<(), M::Error> {
        match name {
            "typeStrindex" => field.index(&mut self.kind),
            "unitStrindex" => field.index(&mut self.unit),
            _ => field.skip(),
        }
    }
}
