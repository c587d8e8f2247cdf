//! Decodes wire bytes into a model.
//!
//! Reads validated bytes. After repair they include bad rows that nothing refers to: there invalid UTF-8 becomes empty,
//! an id of wrong length unset. Without repair both are errors.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;

use super::invalid::Reason;
use super::rows::{self, RowLists};
use super::tables::{Request, Tables};
use super::tags::{
    dictionary, entity_ref, profile, resource, resource_profiles, scope, scope_profiles,
};
use super::value::{AnyValue, any_value, items, key_value};
use crate::proto::{Reader, WireError};
use crate::strings::StringTableBuilder;
use crate::{
    Attribute, Dictionary, EntityRef, KeyValue, Link, LocationRef, MappingRef, Model,
    OriginalPayload, Profile, Resource, ResourceProfiles, SampleRef, Scope, ScopeProfiles,
    StringIdx, StringTable, Value,
};

/// What to omit, by position in the whole request.
#[derive(Default)]
pub(crate) struct Skip {
    pub rows: RowQuality,
    pub samples: BTreeMap<usize, Reason>,
    pub profiles: BTreeSet<usize>,
    /// Whether a resource or scope is bad: its content is omitted, and so are resources and scopes left empty.
    pub has_bad_heads: bool,
}

/// What validation promised about rows.
#[derive(Clone, Copy, Default)]
pub(crate) enum RowQuality {
    #[default]
    Valid,
    /// Bad rows are left, but nothing refers to them.
    Repaired,
}

impl RowQuality {
    pub(crate) fn utf8(self, text: &[u8]) -> Result<&str, WireError> {
        match (std::str::from_utf8(text), self) {
            (Ok(text), _) => Ok(text),
            (Err(_), Self::Repaired) => Ok(""),
            (Err(_), Self::Valid) => Err(WireError::NotUtf8),
        }
    }

    /// An id; an empty one is unset.
    pub(super) fn id<const N: usize>(self, id: &[u8]) -> Result<Option<[u8; N]>, WireError> {
        match (<[u8; N]>::try_from(id), self) {
            (Ok(id), _) => Ok(Some(id)),
            (Err(_), Self::Valid) if !id.is_empty() => Err(WireError::IdLength {
                len: id.len(),
                expected: N,
            }),
            (Err(_), _) => Ok(None),
        }
    }
}

/// Resolves string indices of resources, scopes and values.
pub(super) trait StringLookup {
    fn text(&self, index: StringIdx) -> &str;

    fn rows(&self) -> RowQuality {
        RowQuality::Valid
    }
}

/// The strings of a request that may have been repaired.
struct Strings<'a> {
    table: &'a StringTable,
    rows: RowQuality,
}

impl StringLookup for Strings<'_> {
    fn text(&self, index: StringIdx) -> &str {
        self.table.get(index)
    }

    fn rows(&self) -> RowQuality {
        self.rows
    }
}

impl StringLookup for StringTable {
    fn text(&self, index: StringIdx) -> &str {
        self.get(index)
    }
}

pub(crate) fn decode(wire: &Bytes, skip: &Skip) -> Result<Model, WireError> {
    let request = Request::read(wire)?;
    let mut decoder = Decoder {
        wire,
        skip,
        dictionary: Dictionary::default(),
        lists: RowLists::default(),
        profiles: 0,
        samples: 0,
    };
    decoder.tables(&Tables::of_valid(&request.dictionary)?)?;
    let mut resources = Vec::with_capacity(request.resources.len());
    for message in request.resources.iter() {
        resources.push(decoder.resource_profiles(message)?);
    }
    if skip.has_bad_heads || !skip.profiles.is_empty() {
        for resource in &mut resources {
            resource.scopes.retain(|scope| !scope.profiles.is_empty());
        }
        resources.retain(|resource| !resource.scopes.is_empty());
    }
    Ok(Model {
        dictionary: Arc::new(decoder.dictionary),
        resources,
    })
}

struct Decoder<'a> {
    wire: &'a Bytes,
    skip: &'a Skip,
    dictionary: Dictionary,
    lists: RowLists,
    /// Number of preceding ones.
    profiles: usize,
    samples: usize,
}

impl Decoder<'_> {
    // === tables; row 0 of each already exists ===

    fn tables(&mut self, tables: &Tables<'_>) -> Result<(), WireError> {
        self.dictionary.strings = string_table(tables, self.skip.rows)?;
        let rows = |table| tables.len(table) as usize;
        let room = &mut self.dictionary;
        room.attributes.reserve(rows(dictionary::ATTRIBUTES));
        room.functions.reserve(rows(dictionary::FUNCTIONS));
        room.locations.reserve(rows(dictionary::LOCATIONS));
        // Most indices are two bytes long.
        let locations = tables.bytes(dictionary::STACKS) / 2;
        room.stacks.reserve(rows(dictionary::STACKS), locations);
        for message in tables.rows(dictionary::ATTRIBUTES).skip(1) {
            let row = rows::attribute(message?)?;
            let value = match row.value {
                Some(value) => self.value(value)?,
                None => Value::Empty,
            };
            self.dictionary.attributes.push(Attribute {
                key: row.key,
                value,
                unit: row.unit,
            });
        }
        for message in tables.rows(dictionary::FUNCTIONS).skip(1) {
            self.dictionary.functions.push(rows::function(message?)?);
        }
        for message in tables.rows(dictionary::LINKS).skip(1) {
            let row = rows::link(message?)?;
            self.dictionary.links.push(Link {
                trace_id: self.skip.rows.id(row.trace_id)?.unwrap_or_default(),
                span_id: self.skip.rows.id(row.span_id)?.unwrap_or_default(),
            });
        }
        for message in tables.rows(dictionary::MAPPINGS).skip(1) {
            let mapping = rows::mapping(message?, &mut self.lists)?;
            self.dictionary.mappings.push(MappingRef {
                mapping,
                attributes: &self.lists.attributes,
            });
        }
        for message in tables.rows(dictionary::LOCATIONS).skip(1) {
            let location = rows::location(message?, &mut self.lists)?;
            self.dictionary.locations.push(LocationRef {
                location,
                lines: &self.lists.lines,
                attributes: &self.lists.attributes,
            });
        }
        for message in tables.rows(dictionary::STACKS).skip(1) {
            rows::stack(message?, &mut self.lists)?;
            self.dictionary.stacks.push(&self.lists.locations);
        }
        Ok(())
    }

    fn strings(&self) -> Strings<'_> {
        Strings {
            table: &self.dictionary.strings,
            rows: self.skip.rows,
        }
    }

    // === resources, scopes, profiles ===

    fn resource_profiles(&mut self, message: &[u8]) -> Result<ResourceProfiles, WireError> {
        let mut row = ResourceProfiles::default();
        let mut reader = Reader::new(message);
        while let Some(tag) = reader.tag()? {
            match tag {
                resource_profiles::RESOURCE => {
                    row.resource = Some(Arc::new(resource(reader.bytes()?, &self.strings())?));
                }
                resource_profiles::SCOPES => row.scopes.push(self.scope_profiles(reader.bytes()?)?),
                resource_profiles::SCHEMA_URL => {
                    row.schema_url = self.skip.rows.utf8(reader.bytes()?)?.into()
                }
                unknown => reader.skip(unknown, resource_profiles::KNOWN)?,
            }
        }
        Ok(row)
    }

    fn scope_profiles(&mut self, message: &[u8]) -> Result<ScopeProfiles, WireError> {
        let mut row = ScopeProfiles::default();
        let mut reader = Reader::new(message);
        while let Some(tag) = reader.tag()? {
            match tag {
                scope_profiles::SCOPE => {
                    row.scope = Some(Arc::new(scope(reader.bytes()?, &self.strings())?));
                }
                scope_profiles::PROFILES => {
                    let profile = self.profile(reader.bytes()?)?;
                    if !self.skip.profiles.contains(&self.profiles) {
                        row.profiles.push(Arc::new(profile));
                    }
                    self.profiles += 1;
                }
                scope_profiles::SCHEMA_URL => {
                    row.schema_url = self.skip.rows.utf8(reader.bytes()?)?.into()
                }
                unknown => reader.skip(unknown, scope_profiles::KNOWN)?,
            }
        }
        Ok(row)
    }

    fn profile(&mut self, message: &[u8]) -> Result<Profile, WireError> {
        let mut row = Profile::default();
        let samples = &mut self.samples;
        let skip = &self.skip.samples;
        profile(
            message,
            self.wire,
            &mut self.lists,
            &mut row,
            self.skip.rows,
            || {
                *samples += 1;
                skip.is_empty() || !skip.contains_key(&(*samples - 1))
            },
        )?;
        Ok(row)
    }

    fn value(&self, message: &[u8]) -> Result<Value, WireError> {
        value(message, &self.strings())
    }
}

pub(super) fn string_table(
    tables: &Tables<'_>,
    quality: RowQuality,
) -> Result<StringTable, WireError> {
    let rows = tables.len(dictionary::STRINGS) as usize;
    let mut strings = StringTableBuilder::with_capacity(rows, tables.bytes(dictionary::STRINGS));
    for text in tables.rows(dictionary::STRINGS).skip(1) {
        strings.push(text?);
    }
    match quality {
        RowQuality::Valid => strings.finish().ok_or(WireError::NotUtf8),
        RowQuality::Repaired => Ok(strings.finish_repaired()),
    }
}

/// Reads a profile into an empty one; `keep` filters samples.
pub(super) fn profile(
    message: &[u8],
    wire: &Bytes,
    lists: &mut RowLists,
    row: &mut Profile,
    rows: RowQuality,
    mut keep: impl FnMut() -> bool,
) -> Result<(), WireError> {
    let mut payload = OriginalPayload::default();
    let mut reader = Reader::new(message);
    while let Some(tag) = reader.tag()? {
        match tag {
            profile::SAMPLES => {
                let sample = rows::sample(reader.bytes()?, lists)?;
                if keep() {
                    row.samples.push(SampleRef {
                        stack: sample.stack,
                        link: sample.link,
                        attributes: &lists.attributes,
                        values: &lists.values,
                        timestamps: &lists.timestamps,
                    });
                }
            }
            profile::SAMPLE_TYPE => row.sample_type = Some(rows::value_type(reader.bytes()?)?),
            profile::TIME => row.time_unix_nano = reader.fixed64()?,
            profile::DURATION => row.duration_nano = reader.varint()?,
            profile::PERIOD_TYPE => row.period_type = Some(rows::value_type(reader.bytes()?)?),
            profile::PERIOD => row.period = reader.int64()?,
            profile::PROFILE_ID => row.profile_id = rows.id(reader.bytes()?)?,
            profile::DROPPED_ATTRIBUTES => row.dropped_attributes_count = reader.uint32()?,
            profile::PAYLOAD_FORMAT => payload.format = rows.utf8(reader.bytes()?)?.into(),
            profile::PAYLOAD => payload.payload = wire.slice_ref(reader.bytes()?),
            profile::ATTRIBUTES => reader.packed_uint32(&mut row.attributes)?,
            profile::ATTRIBUTE => row.attributes.push(reader.uint32()?.into()),
            unknown => reader.skip(unknown, profile::KNOWN)?,
        }
    }
    if !payload.payload.is_empty() {
        row.original_payload = Some(payload);
    }
    Ok(())
}

pub(super) fn scope(message: &[u8], strings: &impl StringLookup) -> Result<Scope, WireError> {
    let mut row = Scope::default();
    let mut reader = Reader::new(message);
    while let Some(tag) = reader.tag()? {
        match tag {
            scope::NAME => row.name = strings.rows().utf8(reader.bytes()?)?.into(),
            scope::VERSION => row.version = strings.rows().utf8(reader.bytes()?)?.into(),
            scope::ATTRIBUTES => row.attributes.push(pair(reader.bytes()?, strings)?),
            scope::DROPPED_ATTRIBUTES => row.dropped_attributes_count = reader.uint32()?,
            unknown => reader.skip(unknown, scope::KNOWN)?,
        }
    }
    Ok(row)
}

pub(super) fn resource(message: &[u8], strings: &impl StringLookup) -> Result<Resource, WireError> {
    let mut row = Resource::default();
    let mut reader = Reader::new(message);
    while let Some(tag) = reader.tag()? {
        match tag {
            resource::ATTRIBUTES => row.attributes.push(pair(reader.bytes()?, strings)?),
            resource::DROPPED_ATTRIBUTES => row.dropped_attributes_count = reader.uint32()?,
            resource::ENTITY_REFS => row
                .entity_refs
                .push(entity(reader.message()?, strings.rows())?),
            unknown => reader.skip(unknown, resource::KNOWN)?,
        }
    }
    Ok(row)
}

fn entity(mut reader: Reader<'_>, rows: RowQuality) -> Result<EntityRef, WireError> {
    let mut row = EntityRef::default();
    while let Some(tag) = reader.tag()? {
        match tag {
            entity_ref::SCHEMA_URL => row.schema_url = rows.utf8(reader.bytes()?)?.into(),
            entity_ref::KIND => row.kind = rows.utf8(reader.bytes()?)?.into(),
            entity_ref::ID_KEYS => row.id_keys.push(rows.utf8(reader.bytes()?)?.into()),
            entity_ref::DESCRIPTION_KEYS => {
                row.description_keys
                    .push(rows.utf8(reader.bytes()?)?.into());
            }
            unknown => reader.skip(unknown, entity_ref::KNOWN)?,
        }
    }
    Ok(row)
}

/// Reads an attribute and resolves its string indices.
fn pair(message: &[u8], strings: &impl StringLookup) -> Result<KeyValue, WireError> {
    let pair = key_value(message)?;
    let key = if pair.key.is_empty() {
        strings.text(pair.key_index)
    } else {
        strings.rows().utf8(pair.key)?
    };
    Ok(KeyValue {
        key: key.into(),
        value: match pair.value {
            Some(message) => value(message, strings)?,
            None => Value::Empty,
        },
    })
}

pub(super) fn value(message: &[u8], strings: &impl StringLookup) -> Result<Value, WireError> {
    Ok(match any_value(message)? {
        AnyValue::Empty => Value::Empty,
        AnyValue::String(text) => Value::Str(strings.rows().utf8(text)?.into()),
        AnyValue::StringIndex(index) => Value::Str(strings.text(index).into()),
        AnyValue::Bool(flag) => Value::Bool(flag),
        AnyValue::Int(number) => Value::Int(number),
        AnyValue::Double(number) => Value::Double(number),
        AnyValue::Bytes(bytes) => Value::Bytes(bytes.into()),
        AnyValue::Array(array) => Value::Array(
            items(array)
                .map(|item| value(item?, strings))
                .collect::<Result<_, _>>()?,
        ),
        AnyValue::Map(map) => Value::Map(
            items(map)
                .map(|item| pair(item?, strings))
                .collect::<Result<_, _>>()?,
        ),
    })
}
