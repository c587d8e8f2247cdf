//! Models of any content: indices may point anywhere, since JSON does not look at them.

use std::sync::Arc;

use proptest::collection::vec;
use proptest::prelude::*;

use crate::{
    Attribute, Attributes, Dictionary, EntityRef, Function, Idx, KeyValue, Line, Link, Location,
    LocationRef, Mapping, MappingRef, Model, OriginalPayload, Profile, Resource, ResourceProfiles,
    SampleRef, Samples, Scope, ScopeProfiles, Value, ValueType,
};

pub(super) fn model() -> impl Strategy<Value = Model> {
    (dictionary(), vec(resource_profiles(), 0..3)).prop_map(|(dictionary, resources)| Model {
        dictionary: Arc::new(dictionary),
        resources,
    })
}

fn text() -> impl Strategy<Value = Arc<str>> {
    prop_oneof!["", "[a-z._]{1,8}", "\\PC{0,4}", "[\\x00-\\x7f]{0,4}"].prop_map(Arc::from)
}

fn index<T: ?Sized + 'static>() -> impl Strategy<Value = Idx<T>> {
    prop_oneof![0..6u32, 0..=i32::MAX as u32].prop_map(Idx::new)
}

fn indices<T: ?Sized + 'static>() -> impl Strategy<Value = Vec<Idx<T>>> {
    vec(index(), 0..4)
}

fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Empty),
        text().prop_map(Value::Str),
        any::<bool>().prop_map(Value::Bool),
        any::<i64>().prop_map(Value::Int),
        any::<f64>().prop_map(Value::Double),
        Just(Value::Double(f64::INFINITY)),
        Just(Value::Double(f64::NAN)),
        vec(any::<u8>(), 0..5).prop_map(|bytes| Value::Bytes(bytes.into())),
    ];
    leaf.prop_recursive(3, 12, 3, |inner| {
        prop_oneof![
            vec(inner.clone(), 0..3).prop_map(|values| Value::Array(values.into())),
            vec(key_value(inner), 0..3).prop_map(|entries| Value::Map(entries.into())),
        ]
    })
}

fn key_value(value: impl Strategy<Value = Value>) -> impl Strategy<Value = KeyValue> {
    (text(), value).prop_map(|(key, value)| KeyValue { key, value })
}

fn attributes() -> impl Strategy<Value = Attributes> {
    vec(key_value(value()), 0..3)
}

fn resource_profiles() -> impl Strategy<Value = ResourceProfiles> {
    let entity = (text(), text(), vec(text(), 0..2), vec(text(), 0..2)).prop_map(
        |(schema_url, kind, id_keys, description_keys)| EntityRef {
            schema_url,
            kind,
            id_keys,
            description_keys,
        },
    );
    let resource = (attributes(), any::<u32>(), vec(entity, 0..2)).prop_map(
        |(attributes, dropped_attributes_count, entity_refs)| {
            Arc::new(Resource {
                attributes,
                dropped_attributes_count,
                entity_refs,
            })
        },
    );
    let parts = (
        prop::option::of(resource),
        vec(scope_profiles(), 0..3),
        text(),
    );
    parts.prop_map(|(resource, scopes, schema_url)| ResourceProfiles {
        resource,
        scopes,
        schema_url,
    })
}

fn scope_profiles() -> impl Strategy<Value = ScopeProfiles> {
    let scope = (text(), text(), attributes(), any::<u32>()).prop_map(
        |(name, version, attributes, dropped_attributes_count)| {
            Arc::new(Scope {
                name,
                version,
                attributes,
                dropped_attributes_count,
            })
        },
    );
    let profiles = vec(profile().prop_map(Arc::new), 0..3);
    (prop::option::of(scope), profiles, text()).prop_map(|(scope, profiles, schema_url)| {
        ScopeProfiles {
            scope,
            profiles,
            schema_url,
        }
    })
}

fn value_type() -> impl Strategy<Value = Option<ValueType>> {
    prop::option::of((index(), index()).prop_map(|(kind, unit)| ValueType { kind, unit }))
}

fn profile() -> impl Strategy<Value = Profile> {
    let times = (any::<u64>(), any::<u64>(), any::<i64>());
    let payload =
        ("[a-z]{1,5}", vec(any::<u8>(), 1..5)).prop_map(|(format, payload)| OriginalPayload {
            format: format.into(),
            payload: payload.into(),
        });
    let rest = (
        prop::option::of(any::<[u8; 16]>()),
        any::<u32>(),
        prop::option::of(payload),
        indices(),
    );
    (value_type(), samples(), times, value_type(), rest).prop_map(
        |(sample_type, samples, times, period_type, rest)| Profile {
            sample_type,
            samples,
            time_unix_nano: times.0,
            duration_nano: times.1,
            period_type,
            period: times.2,
            profile_id: rest.0,
            dropped_attributes_count: rest.1,
            original_payload: rest.2,
            attributes: rest.3,
        },
    )
}

fn samples() -> impl Strategy<Value = Samples> {
    let sample = (
        index(),
        index(),
        indices(),
        vec(any::<i64>(), 0..3),
        vec(any::<u64>(), 0..3),
    );
    vec(sample, 0..4).prop_map(|rows| {
        let mut samples = Samples::default();
        for (stack, link, attributes, values, timestamps) in &rows {
            samples.push(SampleRef {
                stack: *stack,
                link: *link,
                attributes,
                values,
                timestamps,
            });
        }
        samples
    })
}

fn dictionary() -> impl Strategy<Value = Dictionary> {
    let line = (index(), any::<i64>(), any::<i64>()).prop_map(|(function, line, column)| Line {
        function,
        line,
        column,
    });
    let mapping = (any::<(u64, u64, u64)>(), index(), indices());
    let location = (index(), any::<u64>(), vec(line, 0..3), indices());
    let function = (index(), index(), index(), any::<i64>());
    let attribute = (index(), value(), index());
    (
        (vec(text(), 0..5), vec(function, 0..4)),
        (vec(mapping, 0..3), vec(location, 0..4)),
        vec(indices(), 0..4),
        vec(any::<([u8; 16], [u8; 8])>(), 0..3),
        vec(attribute, 0..4),
    )
        .prop_map(
            |((texts, functions), (mappings, locations), stacks, links, attributes)| {
                let mut dictionary = Dictionary::default();
                for text in texts {
                    dictionary.strings.push(&text);
                }
                for (name, system_name, filename, start_line) in functions {
                    dictionary.functions.push(Function {
                        name,
                        system_name,
                        filename,
                        start_line,
                    });
                }
                for ((memory_start, memory_limit, file_offset), filename, attributes) in mappings {
                    dictionary.mappings.push(MappingRef {
                        mapping: Mapping {
                            memory_start,
                            memory_limit,
                            file_offset,
                            filename,
                        },
                        attributes: &attributes,
                    });
                }
                for (mapping, address, lines, attributes) in locations {
                    dictionary.locations.push(LocationRef {
                        location: Location { mapping, address },
                        lines: &lines,
                        attributes: &attributes,
                    });
                }
                for stack in stacks {
                    dictionary.stacks.push(&stack);
                }
                for (trace_id, span_id) in links {
                    dictionary.links.push(Link { trace_id, span_id });
                }
                for (key, value, unit) in attributes {
                    dictionary.attributes.push(Attribute { key, value, unit });
                }
                dictionary
            },
        )
}
