//! The JSON Schema of the whole configuration, for editors.

use profcol_component::{Entry, Registry};
use profcol_config::schema::schema_of;
use serde_json::{Map, Value, json};

use super::editors::for_editors;
use super::{PipelineSettings, ServiceSettings};

/// The schema of all components in `registry`.
pub fn schema(registry: &Registry) -> Value {
    let mut definitions = Map::new();
    define(
        &mut definitions,
        "pipeline",
        schema_of::<PipelineSettings>(),
    );
    define(&mut definitions, "service", schema_of::<ServiceSettings>());
    if let Some(Value::Object(properties)) = definitions
        .get_mut("service")
        .and_then(|service| service.get_mut("properties"))
    {
        properties.insert(
            "pipelines".to_owned(),
            json!({
                "description": "Pipelines by id: `profiles` or `profiles/<name>`.",
                "type": "object",
                "minProperties": 1,
                "patternProperties": { "^profiles(/.+)?$": reference("pipeline") },
                "additionalProperties": false,
            }),
        );
    }
    let properties = json!({
        "receivers": section("receiver", registry.receivers, &mut definitions),
        "processors": section("processor", registry.processors, &mut definitions),
        "exporters": section("exporter", registry.exporters, &mut definitions),
        "connectors": section("connector", registry.connectors, &mut definitions),
        "extensions": section("extension", registry.extensions, &mut definitions),
        "service": reference("service"),
    });
    let mut schema = json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "profcol",
        "description": "The configuration of profcol, the profile collector.",
        "type": "object",
        "properties": properties,
        "additionalProperties": false,
        "$defs": definitions,
    });
    for_editors(&mut schema);
    schema
}

fn section<C: ?Sized>(
    kind: &str,
    registry: &[Entry<C>],
    definitions: &mut Map<String, Value>,
) -> Value {
    let mut patterns = Map::new();
    for entry in registry {
        let name = format!("{kind}_{}", entry.name);
        define(definitions, &name, (entry.schema)());
        let names: Vec<&str> = std::iter::once(entry.name)
            .chain(entry.aliases.iter().copied())
            .collect();
        let pattern = format!("^({})(/.+)?$", names.join("|"));
        patterns.insert(
            pattern,
            json!({ "anyOf": [reference(&name), { "type": "null" }] }),
        );
    }
    json!({
        "description": format!("The {kind}s, by id: `type` or `type/name`."),
        "type": ["object", "null"],
        "patternProperties": patterns,
        "additionalProperties": false,
    })
}

fn reference(name: &str) -> Value {
    json!({ "$ref": format!("#/$defs/{name}") })
}

/// Adds a schema; its own definitions move to names below `name`.
fn define(definitions: &mut Map<String, Value>, name: &str, mut schema: Value) {
    if let Some(map) = schema.as_object_mut() {
        map.remove("$schema");
        if let Some(Value::Object(own)) = map.remove("$defs") {
            for (inner, mut definition) in own {
                relocate(&mut definition, name);
                definitions.insert(format!("{name}.{inner}"), definition);
            }
        }
    }
    relocate(&mut schema, name);
    definitions.insert(name.to_owned(), schema);
}

fn relocate(schema: &mut Value, name: &str) {
    match schema {
        Value::Object(map) => {
            for (key, value) in map {
                match value {
                    Value::String(target) if key == "$ref" => {
                        if let Some(inner) = target.strip_prefix("#/$defs/") {
                            *target = format!("#/$defs/{name}.{inner}");
                        }
                    }
                    value => relocate(value, name),
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| relocate(item, name)),
        _ => {}
    }
}
