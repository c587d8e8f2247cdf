//! Merges a request into a [`Merger`] without decoding it into a model.
//!
//! Each table is read once, after the tables it references: a row is interned with its references translated, and the
//! result is the translation of references to it. Unreferenced rows are interned too; the merger drops them at the end,
//! after deduplication across requests.

use std::sync::Arc;

use bytes::Bytes;

use super::decode::{self, RowQuality, StringLookup};
use super::fields::{Rows, fields};
use super::rows::{self, RowLists};
use super::tables::{Request, Tables, collect_strings};
use super::tags::{dictionary, resource, resource_profiles, scope, scope_profiles};
use super::value::{AnyValue, any_value};
use crate::proto::WireError;
use crate::select::{Selection, UsedRows};
use crate::{
    AttributeRef, Function, Interner, Link, Location, LocationRef, Mapping, MappingRef, Merger,
    Profile, StringIdx, StringTable,
};

const VALID: RowQuality = RowQuality::Valid;

impl Merger {
    /// Adds a validated request without decoding it into a model. Only new rows take memory.
    pub(crate) fn add_wire(&mut self, wire: &Bytes) -> Result<(), WireError> {
        self.unused_rows = true;
        let request = Request::read(wire)?;
        let tables = Tables::of_valid(&request.dictionary)?;
        let mut selection = std::mem::take(&mut self.selection);
        selection.clear_for_all();
        let mut source = Source {
            wire,
            selection,
            lists: RowLists::default(),
            profile: Profile::default(),
            head: Vec::new(),
            indices: Vec::new(),
        };
        source.tables(&tables, &mut self.interner)?;
        for message in request.resources.iter() {
            source.resource_profiles(message, self)?;
        }
        self.selection = source.selection;
        Ok(())
    }
}

struct Source<'a> {
    wire: &'a Bytes,
    /// The new place of each row.
    selection: Selection,
    // Reused buffers, to avoid allocations per row.
    lists: RowLists,
    profile: Profile,
    /// The [`Merger::known`] key of a resource or scope.
    head: Vec<u8>,
    indices: Vec<StringIdx>,
}

impl Source<'_> {
    fn tables(&mut self, tables: &Tables<'_>, to: &mut Interner) -> Result<(), WireError> {
        self.strings(tables.rows(dictionary::STRINGS), to)?;
        self.attributes(tables.rows(dictionary::ATTRIBUTES), to)?;
        self.functions(tables.rows(dictionary::FUNCTIONS), to)?;
        self.links(tables.rows(dictionary::LINKS), to)?;
        self.mappings(tables.rows(dictionary::MAPPINGS), to)?;
        self.locations(tables.rows(dictionary::LOCATIONS), to)?;
        self.stacks(tables.rows(dictionary::STACKS), to)
    }

    // === tables; row 0 of each already exists. Not inlined: each gets its own loop ===

    #[inline(never)]
    fn strings(&mut self, table: Rows<'_>, to: &mut Interner) -> Result<(), WireError> {
        for text in table.skip(1) {
            self.selection.strings.append(to.valid_string(text?)?);
        }
        Ok(())
    }

    #[inline(never)]
    fn attributes(&mut self, table: Rows<'_>, to: &mut Interner) -> Result<(), WireError> {
        let selection = &mut self.selection;
        for message in table.skip(1) {
            let row = rows::attribute(message?)?;
            let key = selection.strings.new_index(row.key);
            let unit = selection.strings.new_index(row.unit);
            let value = row.value.unwrap_or_default();
            let new_index = match any_value(value)? {
                AnyValue::String(text) => to.valid_text_attribute(key, text, unit)?,
                _ => {
                    let value = decode::value(value, &Translated::new(&selection.strings, to))?;
                    let value = &value;
                    to.attribute(AttributeRef { key, value, unit })
                }
            };
            selection.attributes.append(new_index);
        }
        Ok(())
    }

    #[inline(never)]
    fn functions(&mut self, table: Rows<'_>, to: &mut Interner) -> Result<(), WireError> {
        let Selection {
            strings, functions, ..
        } = &mut self.selection;
        for message in table.skip(1) {
            let row = rows::function(message?)?;
            functions.append(to.function(Function {
                name: strings.new_index(row.name),
                system_name: strings.new_index(row.system_name),
                filename: strings.new_index(row.filename),
                start_line: row.start_line,
            }));
        }
        Ok(())
    }

    #[inline(never)]
    fn links(&mut self, table: Rows<'_>, to: &mut Interner) -> Result<(), WireError> {
        for message in table.skip(1) {
            let row = rows::link(message?)?;
            self.selection.links.append(to.link(Link {
                trace_id: VALID.id(row.trace_id)?.unwrap_or_default(),
                span_id: VALID.id(row.span_id)?.unwrap_or_default(),
            }));
        }
        Ok(())
    }

    #[inline(never)]
    fn mappings(&mut self, table: Rows<'_>, to: &mut Interner) -> Result<(), WireError> {
        let Self {
            selection, lists, ..
        } = self;
        for message in table.skip(1) {
            let row = rows::mapping(message?, lists)?;
            selection.attributes.translate(&mut lists.attributes);
            selection.mappings.append(to.mapping(MappingRef {
                mapping: Mapping {
                    filename: selection.strings.new_index(row.filename),
                    ..row
                },
                attributes: &lists.attributes,
            }));
        }
        Ok(())
    }

    #[inline(never)]
    fn locations(&mut self, table: Rows<'_>, to: &mut Interner) -> Result<(), WireError> {
        let Self {
            selection, lists, ..
        } = self;
        for message in table.skip(1) {
            let row = rows::location(message?, lists)?;
            selection.attributes.translate(&mut lists.attributes);
            for line in &mut lists.lines {
                line.function = selection.functions.new_index(line.function);
            }
            selection.locations.append(to.location(LocationRef {
                location: Location {
                    mapping: selection.mappings.new_index(row.mapping),
                    address: row.address,
                },
                lines: &lists.lines,
                attributes: &lists.attributes,
            }));
        }
        Ok(())
    }

    #[inline(never)]
    fn stacks(&mut self, table: Rows<'_>, to: &mut Interner) -> Result<(), WireError> {
        let Self {
            selection, lists, ..
        } = self;
        for message in table.skip(1) {
            rows::stack(message?, lists)?;
            selection.locations.translate(&mut lists.locations);
            selection.stacks.append(to.stack(&lists.locations));
        }
        Ok(())
    }

    // === resources, scopes, profiles ===

    fn resource_profiles(&mut self, message: &[u8], to: &mut Merger) -> Result<(), WireError> {
        let row = last(message, resource_profiles::RESOURCE)?;
        let schema_url = last(message, resource_profiles::SCHEMA_URL)?.unwrap_or_default();
        self.set_head(u32::MAX as usize, row, schema_url);
        let position = match to.known(&self.head) {
            Some(position) => position,
            None => {
                let texts = Translated::new(&self.selection.strings, &to.interner);
                let resource = row.map(|row| decode::resource(row, &texts)).transpose()?;
                let position = to.resource(resource.map(Arc::new), VALID.utf8(schema_url)?.into());
                self.remember(row, resource::ATTRIBUTES, position, to)?;
                position
            }
        };
        for message in fields(message, resource_profiles::SCOPES) {
            self.scope_profiles(message?, position, to)?;
        }
        Ok(())
    }

    fn scope_profiles(
        &mut self,
        message: &[u8],
        resource: usize,
        to: &mut Merger,
    ) -> Result<(), WireError> {
        let row = last(message, scope_profiles::SCOPE)?;
        let schema_url = last(message, scope_profiles::SCHEMA_URL)?.unwrap_or_default();
        self.set_head(resource, row, schema_url);
        let position = match to.known(&self.head) {
            Some(position) => position,
            None => {
                let texts = Translated::new(&self.selection.strings, &to.interner);
                let scope = row.map(|row| decode::scope(row, &texts)).transpose()?;
                let scope = scope.map(Arc::new);
                let position = to.scope(resource, scope, VALID.utf8(schema_url)?.into());
                self.remember(row, scope::ATTRIBUTES, position, to)?;
                position
            }
        };
        for message in fields(message, scope_profiles::PROFILES) {
            self.profile.clear();
            let (lists, profile) = (&mut self.lists, &mut self.profile);
            decode::profile(message?, self.wire, lists, profile, VALID, || true)?;
            to.profile(resource, position, profile, &self.selection);
        }
        Ok(())
    }

    fn set_head(&mut self, parent: usize, row: Option<&[u8]>, schema_url: &[u8]) {
        let bytes = row.unwrap_or_default();
        self.head.clear();
        self.head.extend(parent.to_le_bytes());
        self.head
            .extend(row.map_or(usize::MAX, <[u8]>::len).to_le_bytes());
        self.head.extend_from_slice(bytes);
        self.head.extend_from_slice(schema_url);
    }

    /// Bytes with string indices mean something else in another request.
    fn remember(
        &mut self,
        row: Option<&[u8]>,
        attributes: u32,
        position: usize,
        to: &mut Merger,
    ) -> Result<(), WireError> {
        self.indices.clear();
        collect_strings(row.unwrap_or_default(), attributes, &mut self.indices)?;
        if self.indices.iter().all(|index| !index.is_set()) {
            to.remember(&self.head, position);
        }
        Ok(())
    }
}

/// A singular field; the last occurrence wins.
fn last(message: &[u8], tag: u32) -> Result<Option<&[u8]>, WireError> {
    fields(message, tag).last().transpose()
}

/// The translated strings of a request.
struct Translated<'a> {
    strings: &'a UsedRows<str>,
    table: &'a StringTable,
}

impl<'a> Translated<'a> {
    fn new(strings: &'a UsedRows<str>, interner: &'a Interner) -> Self {
        let table = &interner.dictionary().strings;
        Self { strings, table }
    }
}

impl StringLookup for Translated<'_> {
    fn text(&self, index: StringIdx) -> &str {
        self.table.get(self.strings.new_index(index))
    }
}
