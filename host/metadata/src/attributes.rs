//! Lookup and insertion of attributes.

use std::sync::Arc;

use profcol_profile::{Attributes, KeyValue, Value};

pub const CGROUP: &str = "process.linux.cgroup";
pub const PID: &str = "process.pid";

pub fn find<'a>(attributes: &'a Attributes, key: &str) -> Option<&'a Value> {
    let attribute = attributes.iter().find(|attribute| &*attribute.key == key);
    attribute.map(|attribute| &attribute.value)
}

pub fn text_of(attributes: &Attributes, key: &str) -> Option<Arc<str>> {
    match find(attributes, key)? {
        Value::Str(text) => Some(Arc::clone(text)),
        _ => None,
    }
}

/// Keeps existing values; returns whether anything was added.
pub fn add_missing<'a>(
    attributes: &mut Attributes,
    new: impl IntoIterator<Item = (&'a str, Option<Value>)>,
) -> bool {
    let before = attributes.len();
    for (key, value) in new {
        if let Some(value) = value
            && find(attributes, key).is_none()
        {
            attributes.push(KeyValue::new(key, value));
        }
    }
    attributes.len() > before
}

/// Sets an attribute; returns whether anything changed.
pub fn set(
    attributes: &mut Attributes,
    key: impl AsRef<str> + Into<Arc<str>>,
    value: Value,
) -> bool {
    let mut existing = attributes.iter_mut();
    if let Some(attribute) = existing.find(|attribute| *attribute.key == *key.as_ref()) {
        return replace(&mut attribute.value, value);
    }
    let key = key.into();
    attributes.push(KeyValue { key, value });
    true
}

/// Returns whether the value changed.
pub fn replace(old: &mut Value, new: Value) -> bool {
    let changed = *old != new;
    *old = new;
    changed
}
