//! Attribute values: from a configuration, and as text.

use profcol_profile::{KeyValue, Value};

/// A value from a configuration.
pub fn value_of(json: &serde_json::Value) -> Value {
    match json {
        serde_json::Value::Null => Value::Empty,
        serde_json::Value::Bool(flag) => Value::Bool(*flag),
        serde_json::Value::Number(number) => match number.as_i64() {
            Some(whole) => Value::Int(whole),
            None => Value::Double(number.as_f64().unwrap_or_default()),
        },
        serde_json::Value::String(text) => Value::from(text.as_str()),
        serde_json::Value::Array(items) => Value::Array(items.iter().map(value_of).collect()),
        serde_json::Value::Object(entries) => {
            let entries = entries
                .iter()
                .map(|(key, value)| KeyValue::new(key, value_of(value)));
            Value::Map(entries.collect())
        }
    }
}

/// A value as text: text unchanged, bytes in base64, lists and maps as JSON.
pub fn text(value: &Value) -> String {
    match value {
        Value::Empty => String::new(),
        Value::Str(text) => text.to_string(),
        Value::Bool(flag) => flag.to_string(),
        Value::Int(number) => number.to_string(),
        Value::Double(number) => number.to_string(),
        Value::Bytes(bytes) => base64_of(bytes),
        Value::Array(_) | Value::Map(_) => json_of(value).to_string(),
    }
}

fn json_of(value: &Value) -> serde_json::Value {
    match value {
        Value::Empty => serde_json::Value::Null,
        Value::Str(text) => (**text).into(),
        Value::Bool(flag) => (*flag).into(),
        Value::Int(number) => (*number).into(),
        Value::Double(number) => (*number).into(),
        Value::Bytes(bytes) => base64_of(bytes).into(),
        Value::Array(items) => items.iter().map(json_of).collect(),
        Value::Map(entries) => entries
            .iter()
            .map(|KeyValue { key, value }| (key.to_string(), json_of(value)))
            .collect(),
    }
}

fn base64_of(bytes: &[u8]) -> String {
    use base64::Engine;
    base64::engine::general_purpose::STANDARD.encode(bytes)
}
