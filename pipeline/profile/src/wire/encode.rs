//! Encodes a model into wire bytes.
//!
//! Attributes of resources and scopes are written with plain keys and strings, which every reader supports; row 0 of
//! the link table is an empty message, as required by the conformance checker.

use std::sync::Arc;

use bytes::Bytes;

use super::tags::{
    any_value, attribute, dictionary, entity_ref, function, key_value, line, link, list, location,
    mapping, profile, request, resource, resource_profiles, sample, scope, scope_profiles, stack,
    value_type,
};
use crate::proto::Writer;
use crate::{
    Attribute, Dictionary, EntityRef, Function, Idx, KeyValue, Line, Link, LocationIdx,
    LocationRef, MappingRef, Model, Profile, Resource, ResourceProfiles, SampleRef, Scope,
    ScopeProfiles, Value, ValueType,
};

pub(crate) fn encode(model: &Model) -> Bytes {
    let resources = model.resources.iter().map(resource_estimate);
    let len = dictionary_estimate(&model.dictionary) + resources.sum::<usize>();
    let mut out = Writer::with_capacity(len);
    write_request(&mut out, model);
    let mut bytes = out.into_vec();
    if bytes.capacity() / 8 > bytes.capacity() - bytes.len() {
        return bytes.into();
    }
    bytes.shrink_to_fit();
    bytes.into()
}

// === estimates: too low costs a copy, too high some memory for a while ===

fn dictionary_estimate(dictionary: &Dictionary) -> usize {
    let Dictionary {
        strings,
        functions,
        mappings,
        locations,
        stacks,
        attributes,
        links,
    } = dictionary;
    strings.text_len()
        + 3 * strings.len()
        + 9 * functions.rows().len()
        + 24 * mappings.rows().len()
        + 18 * locations.rows().len()
        + 4 * stacks.len()
        + 2 * stacks.location_count()
        + 28 * attributes.rows().len()
        + 30 * links.rows().len()
}

fn resource_estimate(resource: &ResourceProfiles) -> usize {
    300 + resource.scopes.iter().map(scope_estimate).sum::<usize>()
}

fn scope_estimate(scope: &ScopeProfiles) -> usize {
    let profiles = scope.profiles.iter();
    60 + profiles
        .map(|profile| profile_estimate(profile))
        .sum::<usize>()
}

fn profile_estimate(profile: &Profile) -> usize {
    let samples = &profile.samples;
    let payload = profile.original_payload.as_ref();
    60 + 10 * samples.len()
        + 2 * samples.attribute_count()
        + 2 * samples.value_count()
        + 8 * samples.timestamp_count()
        + payload.map_or(0, |original| original.payload.len())
}

// === resources, scopes, profiles; each function writes a whole field ===

pub(super) fn write_request(out: &mut Writer, model: &Model) {
    for row in &model.resources {
        write_resource_profiles(out, row, &row.scopes);
    }
    let len = dictionary_estimate(&model.dictionary);
    out.nested(request::DICTIONARY, len, |out| {
        write_dictionary(out, &model.dictionary);
    });
}

pub(super) fn write_resource_profiles(
    out: &mut Writer,
    row: &ResourceProfiles,
    scopes: &[ScopeProfiles],
) {
    out.nested(request::RESOURCE_PROFILES, resource_estimate(row), |out| {
        if let Some(resource) = &row.resource {
            out.nested(resource_profiles::RESOURCE, 128, |out| {
                write_resource(out, resource);
            });
        }
        for row in scopes {
            write_scope_profiles(out, row, &row.profiles);
        }
        out.bytes(resource_profiles::SCHEMA_URL, row.schema_url.as_bytes());
    });
}

pub(super) fn write_resource(out: &mut Writer, row: &Resource) {
    for attribute in &row.attributes {
        write_pair(out, resource::ATTRIBUTES, attribute);
    }
    let dropped = row.dropped_attributes_count;
    out.uint(resource::DROPPED_ATTRIBUTES, u64::from(dropped));
    for entity in &row.entity_refs {
        write_entity(out, entity);
    }
}

fn write_entity(out: &mut Writer, row: &EntityRef) {
    out.nested(resource::ENTITY_REFS, 0, |out| {
        out.bytes(entity_ref::SCHEMA_URL, row.schema_url.as_bytes());
        out.bytes(entity_ref::KIND, row.kind.as_bytes());
        for key in &row.id_keys {
            out.bytes_always(entity_ref::ID_KEYS, key.as_bytes());
        }
        for key in &row.description_keys {
            out.bytes_always(entity_ref::DESCRIPTION_KEYS, key.as_bytes());
        }
    });
}

pub(super) fn write_scope_profiles(
    out: &mut Writer,
    row: &ScopeProfiles,
    profiles: &[Arc<Profile>],
) {
    out.nested(resource_profiles::SCOPES, scope_estimate(row), |out| {
        if let Some(scope) = &row.scope {
            write_scope(out, scope);
        }
        for row in profiles {
            write_profile(out, row);
        }
        out.bytes(scope_profiles::SCHEMA_URL, row.schema_url.as_bytes());
    });
}

fn write_scope(out: &mut Writer, row: &Scope) {
    out.nested(scope_profiles::SCOPE, 0, |out| {
        out.bytes(scope::NAME, row.name.as_bytes());
        out.bytes(scope::VERSION, row.version.as_bytes());
        for attribute in &row.attributes {
            write_pair(out, scope::ATTRIBUTES, attribute);
        }
        let dropped = row.dropped_attributes_count;
        out.uint(scope::DROPPED_ATTRIBUTES, u64::from(dropped));
    });
}

pub(super) fn write_profile(out: &mut Writer, row: &Profile) {
    out.nested(scope_profiles::PROFILES, profile_estimate(row), |out| {
        if let Some(sample_type) = row.sample_type {
            write_value_type(out, profile::SAMPLE_TYPE, sample_type);
        }
        for sample in row.samples.iter() {
            write_sample(out, sample);
        }
        out.fixed64(profile::TIME, row.time_unix_nano);
        out.uint(profile::DURATION, row.duration_nano);
        if let Some(period_type) = row.period_type {
            write_value_type(out, profile::PERIOD_TYPE, period_type);
        }
        out.int(profile::PERIOD, row.period);
        if let Some(id) = &row.profile_id {
            out.bytes(profile::PROFILE_ID, id);
        }
        let dropped = row.dropped_attributes_count;
        out.uint(profile::DROPPED_ATTRIBUTES, u64::from(dropped));
        if let Some(original) = &row.original_payload {
            out.bytes(profile::PAYLOAD_FORMAT, original.format.as_bytes());
            out.bytes(profile::PAYLOAD, &original.payload);
        }
        out.packed(profile::ATTRIBUTES, indices(&row.attributes));
    });
}

fn write_value_type(out: &mut Writer, tag: u32, row: ValueType) {
    out.nested(tag, 0, |out| {
        out.uint(value_type::KIND, u64::from(row.kind.get()));
        out.uint(value_type::UNIT, u64::from(row.unit.get()));
    });
}

#[inline(always)]
pub(super) fn write_sample(out: &mut Writer, row: SampleRef<'_>) {
    out.nested(profile::SAMPLES, 0, |out| {
        out.uint(sample::STACK, u64::from(row.stack.get()));
        out.packed(sample::ATTRIBUTES, indices(row.attributes));
        out.uint(sample::LINK, u64::from(row.link.get()));
        let values = row.values.iter().map(|value| value.cast_unsigned());
        out.packed(sample::VALUES, values);
        out.packed_fixed64(sample::TIMESTAMPS, row.timestamps);
    });
}

// === tables ===

fn write_dictionary(out: &mut Writer, tables: &Dictionary) {
    for row in tables.mappings.iter() {
        write_mapping(out, row);
    }
    for row in tables.locations.iter() {
        write_location(out, row);
    }
    for row in tables.functions.rows() {
        write_function(out, row);
    }
    for row in tables.links.rows() {
        write_link(out, row);
    }
    for row in tables.strings.iter_bytes() {
        write_string(out, row);
    }
    for row in tables.attributes.rows() {
        write_attribute(out, row);
    }
    for row in tables.stacks.iter() {
        write_stack(out, row);
    }
}

pub(super) fn write_mapping(out: &mut Writer, row: MappingRef<'_>) {
    out.nested(dictionary::MAPPINGS, 0, |out| {
        out.uint(mapping::START, row.mapping.memory_start);
        out.uint(mapping::LIMIT, row.mapping.memory_limit);
        out.uint(mapping::OFFSET, row.mapping.file_offset);
        out.uint(mapping::FILENAME, u64::from(row.mapping.filename.get()));
        out.packed(mapping::ATTRIBUTES, indices(row.attributes));
    });
}

#[inline(always)]
pub(super) fn write_location(out: &mut Writer, row: LocationRef<'_>) {
    out.nested(dictionary::LOCATIONS, 0, |out| {
        out.uint(location::MAPPING, u64::from(row.location.mapping.get()));
        out.uint(location::ADDRESS, row.location.address);
        for line in row.lines {
            write_line(out, line);
        }
        out.packed(location::ATTRIBUTES, indices(row.attributes));
    });
}

#[inline(always)]
fn write_line(out: &mut Writer, row: &Line) {
    out.nested(location::LINES, 0, |out| {
        out.uint(line::FUNCTION, u64::from(row.function.get()));
        out.int(line::LINE, row.line);
        out.int(line::COLUMN, row.column);
    });
}

#[inline(always)]
pub(super) fn write_function(out: &mut Writer, row: &Function) {
    out.nested(dictionary::FUNCTIONS, 0, |out| {
        out.uint(function::NAME, u64::from(row.name.get()));
        out.uint(function::SYSTEM_NAME, u64::from(row.system_name.get()));
        out.uint(function::FILENAME, u64::from(row.filename.get()));
        out.int(function::START_LINE, row.start_line);
    });
}

pub(super) fn write_link(out: &mut Writer, row: &Link) {
    out.nested(dictionary::LINKS, 0, |out| {
        if row.trace_id != [0; 16] {
            out.bytes(link::TRACE_ID, &row.trace_id);
        }
        if row.span_id != [0; 8] {
            out.bytes(link::SPAN_ID, &row.span_id);
        }
    });
}

pub(super) fn write_string(out: &mut Writer, row: &[u8]) {
    out.bytes_always(dictionary::STRINGS, row);
}

pub(super) fn write_attribute(out: &mut Writer, row: &Attribute) {
    out.nested(dictionary::ATTRIBUTES, 0, |out| {
        out.uint(attribute::KEY, u64::from(row.key.get()));
        write_value(out, attribute::VALUE, &row.value);
        out.uint(attribute::UNIT, u64::from(row.unit.get()));
    });
}

pub(super) fn write_stack(out: &mut Writer, row: &[LocationIdx]) {
    out.nested(dictionary::STACKS, row.len(), |out| {
        out.packed(stack::LOCATIONS, indices(row));
    });
}

#[inline(always)]
fn indices<T>(list: &[Idx<T>]) -> impl ExactSizeIterator<Item = u64> {
    list.iter().map(|index| u64::from(index.get()))
}

// === values ===

fn write_pair(out: &mut Writer, tag: u32, pair: &KeyValue) {
    out.nested(tag, 0, |out| {
        out.bytes(key_value::KEY, pair.key.as_bytes());
        write_value(out, key_value::VALUE, &pair.value);
    });
}

/// Writes nothing for an empty value.
fn write_value(out: &mut Writer, tag: u32, value: &Value) {
    if !matches!(value, Value::Empty) {
        write_item(out, tag, value);
    }
}

/// Writes zero members of `oneof`s too: which one is set matters.
fn write_item(out: &mut Writer, tag: u32, value: &Value) {
    out.nested(tag, 0, |out| match value {
        Value::Empty => {}
        Value::Str(text) => out.bytes_always(any_value::STRING, text.as_bytes()),
        Value::Bool(flag) => out.uint_always(any_value::BOOL, u64::from(*flag)),
        Value::Int(number) => out.uint_always(any_value::INT, number.cast_unsigned()),
        Value::Double(number) => out.fixed64_always(any_value::DOUBLE, number.to_bits()),
        Value::Bytes(bytes) => out.bytes_always(any_value::BYTES, bytes),
        Value::Array(items) => out.nested(any_value::ARRAY, 0, |out| {
            for item in items.iter() {
                write_item(out, list::ITEMS, item);
            }
        }),
        Value::Map(pairs) => out.nested(any_value::MAP, 0, |out| {
            for pair in pairs.iter() {
                write_pair(out, list::ITEMS, pair);
            }
        }),
    });
}
