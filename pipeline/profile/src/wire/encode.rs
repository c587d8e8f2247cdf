//! A model to wire bytes.
//!
//! Attributes of resources and scopes are written with plain keys and text, which every reader
//! knows, row 0 of the link table as the empty message, as the conformance checker wants it.

use bytes::Bytes;

use super::tags::{
    any_value, attribute, dictionary, entity_ref, function, key_value, line, link, list, location,
    mapping, profile, request, resource, resource_profiles, sample, scope, scope_profiles, stack,
    value_type,
};
use crate::proto::Writer;
use crate::{
    Dictionary, EntityRef, Function, KeyValue, Line, Link, LocationRef, MappingRef, Model, Profile,
    Resource, ResourceProfiles, SampleRef, Scope, ScopeProfiles, Value, ValueType,
};

pub(crate) fn encode(model: &Model) -> Bytes {
    let dictionary_len = dictionary_estimate(&model.dictionary);
    let lens: Vec<usize> = model.resources.iter().map(resource_estimate).collect();
    let mut out = Writer::with_capacity(dictionary_len + lens.iter().sum::<usize>());
    for (resource, &len) in model.resources.iter().zip(&lens) {
        out.nested(request::RESOURCE_PROFILES, len, |out| {
            write_resource_profiles(out, resource);
        });
    }
    out.nested(request::DICTIONARY, dictionary_len, |out| {
        write_dictionary(out, &model.dictionary);
    });
    let mut bytes = out.into_vec();
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
        + 8 * functions.rows().len()
        + 24 * mappings.rows().len()
        + 18 * locations.rows().len()
        + 4 * stacks.len()
        + 2 * stacks.location_count()
        + 28 * attributes.rows().len()
        + 30 * links.rows().len()
}

fn resource_estimate(resource: &ResourceProfiles) -> usize {
    let profiles = resource.scopes.iter().flat_map(|scope| &scope.profiles);
    300 + profiles
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

// === resources, scopes, profiles ===

fn write_resource_profiles(out: &mut Writer, row: &ResourceProfiles) {
    if let Some(resource) = &row.resource {
        write_resource(out, resource);
    }
    for scope in &row.scopes {
        let len = scope
            .profiles
            .iter()
            .map(|profile| profile_estimate(profile));
        out.nested(resource_profiles::SCOPES, len.sum(), |out| {
            write_scope_profiles(out, scope);
        });
    }
    out.bytes(resource_profiles::SCHEMA_URL, row.schema_url.as_bytes());
}

pub(super) fn write_resource(out: &mut Writer, row: &Resource) {
    out.nested(resource_profiles::RESOURCE, 128, |out| {
        for attribute in &row.attributes {
            write_pair(out, resource::ATTRIBUTES, attribute);
        }
        let dropped = row.dropped_attributes_count;
        out.uint(resource::DROPPED_ATTRIBUTES, u64::from(dropped));
        for entity in &row.entity_refs {
            out.nested(resource::ENTITY_REFS, 0, |out| write_entity(out, entity));
        }
    });
}

fn write_entity(out: &mut Writer, row: &EntityRef) {
    out.bytes(entity_ref::SCHEMA_URL, row.schema_url.as_bytes());
    out.bytes(entity_ref::KIND, row.kind.as_bytes());
    for key in &row.id_keys {
        out.bytes_always(entity_ref::ID_KEYS, key.as_bytes());
    }
    for key in &row.description_keys {
        out.bytes_always(entity_ref::DESCRIPTION_KEYS, key.as_bytes());
    }
}

fn write_scope_profiles(out: &mut Writer, row: &ScopeProfiles) {
    if let Some(scope) = &row.scope {
        out.nested(scope_profiles::SCOPE, 0, |out| write_scope(out, scope));
    }
    for profile in &row.profiles {
        let len = profile_estimate(profile);
        out.nested(scope_profiles::PROFILES, len, |out| {
            write_profile(out, profile)
        });
    }
    out.bytes(scope_profiles::SCHEMA_URL, row.schema_url.as_bytes());
}

fn write_scope(out: &mut Writer, row: &Scope) {
    out.bytes(scope::NAME, row.name.as_bytes());
    out.bytes(scope::VERSION, row.version.as_bytes());
    for attribute in &row.attributes {
        write_pair(out, scope::ATTRIBUTES, attribute);
    }
    let dropped = row.dropped_attributes_count;
    out.uint(scope::DROPPED_ATTRIBUTES, u64::from(dropped));
}

fn write_profile(out: &mut Writer, row: &Profile) {
    if let Some(sample_type) = row.sample_type {
        write_value_type(out, profile::SAMPLE_TYPE, sample_type);
    }
    for sample in row.samples.iter() {
        out.nested(profile::SAMPLES, 0, |out| write_sample(out, sample));
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
    out.packed(
        profile::ATTRIBUTES,
        row.attributes.iter().map(|index| u64::from(index.get())),
    );
}

fn write_value_type(out: &mut Writer, tag: u32, row: ValueType) {
    out.nested(tag, 0, |out| {
        out.uint(value_type::KIND, u64::from(row.kind.get()));
        out.uint(value_type::UNIT, u64::from(row.unit.get()));
    });
}

#[inline(always)]
fn write_sample(out: &mut Writer, row: SampleRef<'_>) {
    out.uint(sample::STACK, u64::from(row.stack.get()));
    out.packed(
        sample::ATTRIBUTES,
        row.attributes.iter().map(|index| u64::from(index.get())),
    );
    out.uint(sample::LINK, u64::from(row.link.get()));
    let values = row.values.iter().map(|value| value.cast_unsigned());
    out.packed(sample::VALUES, values);
    out.packed_fixed64(sample::TIMESTAMPS, row.timestamps);
}

// === tables ===

fn write_dictionary(out: &mut Writer, tables: &Dictionary) {
    for row in tables.mappings.iter() {
        out.nested(dictionary::MAPPINGS, 0, |out| write_mapping(out, row));
    }
    for row in tables.locations.iter() {
        out.nested(dictionary::LOCATIONS, 0, |out| write_location(out, row));
    }
    for row in tables.functions.rows() {
        out.nested(dictionary::FUNCTIONS, 0, |out| write_function(out, row));
    }
    for row in tables.links.rows() {
        out.nested(dictionary::LINKS, 0, |out| write_link(out, row));
    }
    for text in tables.strings.iter() {
        out.bytes_always(dictionary::STRINGS, text.as_bytes());
    }
    for row in tables.attributes.rows() {
        out.nested(dictionary::ATTRIBUTES, 0, |out| {
            out.uint(attribute::KEY, u64::from(row.key.get()));
            write_value(out, attribute::VALUE, &row.value);
            out.uint(attribute::UNIT, u64::from(row.unit.get()));
        });
    }
    for row in tables.stacks.iter() {
        out.nested(dictionary::STACKS, row.len(), |out| {
            out.packed(
                stack::LOCATIONS,
                row.iter().map(|index| u64::from(index.get())),
            );
        });
    }
}

fn write_mapping(out: &mut Writer, row: MappingRef<'_>) {
    out.uint(mapping::START, row.mapping.memory_start);
    out.uint(mapping::LIMIT, row.mapping.memory_limit);
    out.uint(mapping::OFFSET, row.mapping.file_offset);
    out.uint(mapping::FILENAME, u64::from(row.mapping.filename.get()));
    out.packed(
        mapping::ATTRIBUTES,
        row.attributes.iter().map(|index| u64::from(index.get())),
    );
}

#[inline(always)]
fn write_location(out: &mut Writer, row: LocationRef<'_>) {
    out.uint(location::MAPPING, u64::from(row.location.mapping.get()));
    out.uint(location::ADDRESS, row.location.address);
    for line in row.lines {
        out.nested(location::LINES, 0, |out| write_line(out, line));
    }
    out.packed(
        location::ATTRIBUTES,
        row.attributes.iter().map(|index| u64::from(index.get())),
    );
}

#[inline(always)]
fn write_line(out: &mut Writer, row: &Line) {
    out.uint(line::FUNCTION, u64::from(row.function.get()));
    out.int(line::LINE, row.line);
    out.int(line::COLUMN, row.column);
}

#[inline(always)]
fn write_function(out: &mut Writer, row: &Function) {
    out.uint(function::NAME, u64::from(row.name.get()));
    out.uint(function::SYSTEM_NAME, u64::from(row.system_name.get()));
    out.uint(function::FILENAME, u64::from(row.filename.get()));
    out.int(function::START_LINE, row.start_line);
}

fn write_link(out: &mut Writer, row: &Link) {
    if row.trace_id != [0; 16] {
        out.bytes(link::TRACE_ID, &row.trace_id);
    }
    if row.span_id != [0; 8] {
        out.bytes(link::SPAN_ID, &row.span_id);
    }
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

/// Writes the members of `oneof`s also where they are zero: which one is set is what they say.
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
