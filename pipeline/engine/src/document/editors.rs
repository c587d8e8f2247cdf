//! Converts the schema used for checking into one for editors.
//!
//! Editors see a file before its `${…}` are expanded and do not know our keywords. So references are allowed for all
//! types, case-insensitive values are offered in lower case, and keywords unknown to other tools are removed.

use profcol_config::schema::{ALIASES, IGNORE_CASE};
use serde_json::{Map, Value, json};

pub(super) fn for_editors(schema: &mut Value) {
    match schema {
        Value::Object(map) => {
            let ignore_case = map.remove(IGNORE_CASE).is_some();
            let aliases = map.remove(ALIASES);
            map.retain(|key, _| !key.starts_with("x-"));
            if let Some(Value::Object(aliases)) = aliases {
                add_aliases(map, &aliases);
            }
            if ignore_case {
                add_lower_case(map);
            }
            if !is_choice(map) {
                allow_reference(map);
                map.values_mut().for_each(for_editors);
            }
        }
        Value::Array(items) => items.iter_mut().for_each(for_editors),
        _ => {}
    }
}

fn add_aliases(schema: &mut Map<String, Value>, aliases: &Map<String, Value>) {
    let Some(Value::Object(properties)) = schema.get_mut("properties") else {
        return;
    };
    for (old, new) in aliases {
        let new = new.as_str().and_then(|new| properties.get(new)).cloned();
        if let Some(Value::Object(mut property)) = new {
            property.insert("deprecated".to_owned(), true.into());
            properties.insert(old.clone(), Value::Object(property));
        }
    }
}

fn add_lower_case(schema: &mut Map<String, Value>) {
    let Some(Value::Array(words)) = schema.get_mut("enum") else {
        return;
    };
    let lower = words
        .iter()
        .filter_map(Value::as_str)
        .map(str::to_lowercase);
    let mut offered: Vec<Value> = lower.map(Value::from).collect();
    offered.extend(
        words
            .drain(..)
            .filter(|word| !offered.contains(word))
            .collect::<Vec<_>>(),
    );
    *words = offered;
}

/// Whether this is an enum; if so, allows `${…}` for it.
fn is_choice(schema: &mut Map<String, Value>) -> bool {
    if let Some(words) = schema.remove("enum") {
        schema.remove("type");
        schema.insert("anyOf".to_owned(), json!([{ "enum": words }, reference()]));
        return true;
    }
    let is_word = |option: &Value| option.get("const").is_some() || option.get("enum").is_some();
    match schema.get_mut("oneOf") {
        Some(Value::Array(options)) if options.iter().all(is_word) => {
            options.push(reference());
            true
        }
        _ => false,
    }
}

/// Allows `${…}` for numbers and booleans.
fn allow_reference(schema: &mut Map<String, Value>) {
    let scalar = |name: &Value| matches!(name.as_str(), Some("integer" | "number" | "boolean"));
    let mut names = match schema.get("type") {
        Some(Value::Array(names)) => names.clone(),
        Some(name) => vec![name.clone()],
        None => return,
    };
    if names.iter().any(scalar) && !names.contains(&"string".into()) {
        names.push("string".into());
        schema.insert("type".to_owned(), Value::Array(names));
        schema.insert("pattern".to_owned(), REFERENCE.into());
    }
}

const REFERENCE: &str = r"\$\{";

fn reference() -> Value {
    json!({ "type": "string", "pattern": REFERENCE })
}
