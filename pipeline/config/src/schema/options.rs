//! The options of a configuration type, for the table in a component's README.

use serde_json::Value as Json;

use super::check::shown;
use super::{IGNORE_CASE, alternatives, follow};

/// One configuration option.
#[derive(Clone, Debug, PartialEq)]
pub struct ConfigOption {
    /// Nested keys joined by `::`; a user-defined key is `<key>`, a list item `[]`.
    pub path: String,
    /// Such as `int`, `duration`, `list of string` or `basic | normal | detailed`.
    pub kind: String,
    pub default: Option<Json>,
    pub doc: String,
}

/// All options under `schema` in key order, sections before their contents.
pub fn options(schema: &Json) -> Vec<ConfigOption> {
    let mut rows = Vec::new();
    walk(schema, schema, "", &mut rows, 0);
    rows
}

/// Bounds recursive types; no real configuration is this deep.
const MAX_OPTION_DEPTH: usize = 12;

fn walk(root: &Json, schema: &Json, path: &str, rows: &mut Vec<ConfigOption>, depth: usize) {
    if depth > MAX_OPTION_DEPTH {
        return;
    }
    let schema = follow(root, schema);
    let join = |key: &str| match path {
        "" => key.to_owned(),
        path => format!("{path}::{key}"),
    };
    for alternative in alternatives(schema).into_iter().flatten() {
        walk(root, alternative, path, rows, depth + 1);
    }
    for (key, property) in schema
        .get("properties")
        .and_then(Json::as_object)
        .into_iter()
        .flatten()
    {
        let target = follow(root, property);
        let text = |name: &str| {
            property
                .get(name)
                .or_else(|| target.get(name))
                .and_then(Json::as_str)
        };
        rows.push(ConfigOption {
            path: join(key),
            kind: kind(root, property, 0),
            default: property
                .get("default")
                .or_else(|| target.get("default"))
                .cloned(),
            doc: text("description").unwrap_or_default().to_owned(),
        });
        walk(root, property, &join(key), rows, depth + 1);
    }
    if let Some(free) = schema.get("additionalProperties") {
        walk(root, free, &join("<key>"), rows, depth + 1);
    }
    if let Some(items) = schema.get("items") {
        walk(root, items, &join("[]"), rows, depth + 1);
    }
}

fn kind(root: &Json, schema: &Json, depth: usize) -> String {
    let schema = follow(root, schema);
    if depth > MAX_OPTION_DEPTH {
        return "any".to_owned();
    }
    if let Some(word) = schema.get("const") {
        return word
            .as_str()
            .map_or_else(|| word.to_string(), str::to_owned);
    }
    if let Some(words) = schema.get("enum").and_then(Json::as_array) {
        let ignore_case = schema.get(IGNORE_CASE).is_some_and(|mark| *mark == true);
        let words = words.iter().filter_map(Json::as_str);
        return words
            .filter(|word| !word.is_empty())
            .map(|word| shown(word, ignore_case))
            .collect::<Vec<_>>()
            .join(" | ");
    }
    if let Some(options) = alternatives(schema) {
        let mut kinds: Vec<String> = options
            .iter()
            .map(|option| kind(root, option, depth + 1))
            .collect();
        kinds.retain(|kind| kind != "null");
        kinds.dedup();
        return kinds.join(" | ");
    }
    match schema.get("format").and_then(Json::as_str) {
        Some("go-duration") => return "duration".to_owned(),
        Some("secret") => return "secret".to_owned(),
        Some("component-id" | "pipeline-id") => return "id".to_owned(),
        _ => {}
    }
    let name = match schema.get("type") {
        Some(Json::String(name)) => name.as_str(),
        Some(Json::Array(names)) => names
            .iter()
            .filter_map(Json::as_str)
            .find(|name| *name != "null")
            .unwrap_or("null"),
        _ => "any",
    };
    let inner = |key: &str| {
        schema
            .get(key)
            .map_or_else(|| "any".to_owned(), |inner| kind(root, inner, depth + 1))
    };
    match name {
        "integer" => "int".to_owned(),
        "number" => "float".to_owned(),
        "boolean" => "bool".to_owned(),
        "array" => format!("list of {}", inner("items")),
        "object"
            if schema
                .get("additionalProperties")
                .is_some_and(Json::is_object) =>
        {
            format!("map of {}", inner("additionalProperties"))
        }
        "object" => "section".to_owned(),
        other => other.to_owned(),
    }
}
