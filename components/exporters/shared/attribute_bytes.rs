//! Bytes of attributes to hash: equal exactly if the values are, on every host and in every version.

use profcol_profile::{Attributes, KeyValue, Value};

/// The bytes of all attributes, whatever their order.
pub(crate) fn of_all(attributes: &Attributes) -> Vec<u8> {
    let mut sorted: Vec<&KeyValue> = attributes.iter().collect();
    sorted.sort_by(|a, b| a.key.cmp(&b.key));
    let mut bytes = Vec::new();
    for attribute in sorted {
        add_text(&mut bytes, &attribute.key);
        add(&mut bytes, &attribute.value);
    }
    bytes
}

pub(crate) fn add(bytes: &mut Vec<u8>, value: &Value) {
    match value {
        Value::Empty => bytes.push(0),
        Value::Str(text) => {
            bytes.push(1);
            add_text(bytes, text);
        }
        Value::Bool(flag) => bytes.extend([2, u8::from(*flag)]),
        Value::Int(number) => {
            bytes.push(3);
            bytes.extend(number.to_le_bytes());
        }
        Value::Double(number) => {
            bytes.push(4);
            bytes.extend(number.to_bits().to_le_bytes());
        }
        Value::Bytes(content) => {
            bytes.push(5);
            add_length(bytes, content.len());
            bytes.extend(&**content);
        }
        Value::Array(values) => {
            bytes.push(6);
            add_length(bytes, values.len());
            values.iter().for_each(|value| add(bytes, value));
        }
        Value::Map(entries) => {
            bytes.push(7);
            add_length(bytes, entries.len());
            for entry in entries.iter() {
                add_text(bytes, &entry.key);
                add(bytes, &entry.value);
            }
        }
    }
}

fn add_text(bytes: &mut Vec<u8>, text: &str) {
    add_length(bytes, text.len());
    bytes.extend(text.as_bytes());
}

fn add_length(bytes: &mut Vec<u8>, length: usize) {
    bytes.extend((length as u64).to_le_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_that_differ_have_different_bytes() {
        let text = |text: &str| Value::from(text);
        let values = [
            Value::Empty,
            text(""),
            text("1"),
            Value::Int(1),
            Value::Double(1.0),
            Value::Bool(true),
            Value::Bytes(b"1".as_slice().into()),
            Value::Array([text("a"), text("b")].into()),
            Value::Array([text("ab")].into()),
            Value::Map([KeyValue::new("a", "b")].into()),
        ];
        let mut seen = std::collections::HashSet::new();
        for value in &values {
            let mut bytes = Vec::new();
            add(&mut bytes, value);
            assert!(seen.insert(bytes), "{value:?}");
        }
    }
}
