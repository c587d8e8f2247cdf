//! Redacts secrets in a printed configuration.

use serde_json::Value as Json;

use super::{alternatives, follow};
use crate::values::{REDACTED, redact_url};

/// Replaces every non-empty secret, as declared by `schema`, with `[REDACTED]`; of a URL, only what may be secret.
pub fn redact(value: &mut Json, schema: &Json) {
    walk(value, schema, schema);
}

fn walk(value: &mut Json, schema: &Json, root: &Json) {
    let schema = follow(root, schema);
    for alternative in alternatives(schema).into_iter().flatten() {
        walk(value, alternative, root);
    }
    match value {
        Json::String(text) if !text.is_empty() => {
            match schema.get("format").and_then(Json::as_str) {
                Some("secret") => *text = REDACTED.to_owned(),
                Some("secret-url") => *text = redact_url(text).into_owned(),
                _ => {}
            }
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
