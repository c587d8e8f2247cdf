//! Looking into attributes and adding to them.

use std::sync::Arc;

use profcol_profile::{Attributes, KeyValue, Value};

pub(crate) const CGROUP: &str = "process.linux.cgroup";
pub(crate) const PID: &str = "process.pid";

pub(crate) fn find<'a>(attributes: &'a Attributes, key: &str) -> Option<&'a Value> {
    let found = attributes.iter().find(|attribute| &*attribute.key == key);
    found.map(|attribute| &attribute.value)
}

pub(crate) fn text_of(attributes: &Attributes, key: &str) -> Option<Arc<str>> {
    match find(attributes, key)? {
        Value::Str(text) => Some(Arc::clone(text)),
        _ => None,
    }
}

/// What is there stays as it is; says whether anything was added.
pub(crate) fn add_missing<'a>(
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

/// Sets an attribute, there or not; says whether anything is different now.
pub(crate) fn set(
    attributes: &mut Attributes,
    key: impl AsRef<str> + Into<Arc<str>>,
    value: Value,
) -> bool {
    let mut known = attributes.iter_mut();
    if let Some(attribute) = known.find(|attribute| *attribute.key == *key.as_ref()) {
        return replace(&mut attribute.value, value);
    }
    let key = key.into();
    attributes.push(KeyValue { key, value });
    true
}

/// Says whether it is different now.
pub(crate) fn replace(old: &mut Value, new: Value) -> bool {
    let changed = *old != new;
    *old = new;
    changed
}
