//! Estimates the memory of a model.
//!
//! Shared parts count fully for each holder, so that queues hold too little rather than too much.

use crate::{Attributes, Dictionary, KeyValue, Line, Location, Mapping, Model, Samples, Value};

pub(crate) fn model_size(model: &Model) -> usize {
    let resources: usize = model
        .resources
        .iter()
        .map(|row| {
            let attributes = row.resource.as_deref().map(|resource| &resource.attributes);
            size_of_val(row) + attributes.map_or(0, attributes_size)
        })
        .sum();
    let profiles: usize = model
        .profiles()
        .map(|profile| {
            let payload = profile.original_payload.as_ref();
            size_of_val(profile)
                + samples_size(&profile.samples)
                + payload.map_or(0, |original| original.payload.len())
        })
        .sum();
    resources + profiles + dictionary_size(&model.dictionary)
}

/// Estimated memory of attributes.
pub fn attributes_size(attributes: &Attributes) -> usize {
    attributes.iter().map(pair_size).sum()
}

fn samples_size(samples: &Samples) -> usize {
    // Two indices and three list ends.
    samples.len() * 5 * size_of::<u32>()
        + samples.attribute_count() * size_of::<u32>()
        + (samples.value_count() + samples.timestamp_count()) * size_of::<u64>()
}

fn dictionary_size(tables: &Dictionary) -> usize {
    let attributes = tables.attributes.rows();
    tables.strings.text_len()
        + tables.strings.len() * size_of::<u32>()
        + size_of_val(tables.functions.rows())
        + size_of_val(tables.links.rows())
        + tables.mappings.rows().len() * (size_of::<Mapping>() + 3 * size_of::<u32>())
        + tables.locations.rows().len()
            * (size_of::<Location>() + size_of::<Line>() + 3 * size_of::<u32>())
        + (tables.stacks.len() + tables.stacks.location_count()) * size_of::<u32>()
        + size_of_val(attributes)
        + attributes
            .iter()
            .map(|row| value_size(&row.value))
            .sum::<usize>()
}

fn pair_size(pair: &KeyValue) -> usize {
    size_of_val(pair) + pair.key.len() + value_size(&pair.value)
}

/// Heap memory of a value.
fn value_size(value: &Value) -> usize {
    match value {
        Value::Empty | Value::Bool(_) | Value::Int(_) | Value::Double(_) => 0,
        Value::Str(text) => text.len(),
        Value::Bytes(bytes) => bytes.len(),
        Value::Array(items) => items
            .iter()
            .map(|item| size_of_val(item) + value_size(item))
            .sum(),
        Value::Map(pairs) => pairs.iter().map(pair_size).sum(),
    }
}
