//! Redacts secrets in a printed configuration.

use serde_json::Value as Json;

use super::{alternatives, follow};
use crate::values::REDACTED;

/// Replaces every non-empty secret, as declared by `schema`, with `[REDACTED]`.
pub fn redact(value: &mut Json, schema: &Json) {
    walk(value, schema, schema);
}

fn walk(value: &mut Json, schema: &Json, root: &Json) {
    let schema = follow(root, schema);
    for alternative in alternatives(schema).into_iter().flatten() {
        walk(value, alternative, root);
    }
    match value {
        Json::String(text)
            if schema.get("format").is_some_and(|f| f == "secret") && !text.is_empty() =>
        {
            *text = REDACTED.to_owned();
        }
        Json::Array(items) => {
            if let Some(schema) = schema.get("items") {
                items.iter_mut().for_each(|item| walk(item, schema, root));
            }
        }
        Json::Object(entries) => {
            for (key, value) in entries {
                let named = schema.get("properties").and_then(|p| p.get(key));
                if let Some(schema) = named.or_else(|| schema.get("additionalProperties")) {
                    walk(value, schema, root);
                }
            }
        }
        _ => {}
    }
}
