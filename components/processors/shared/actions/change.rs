//! A change of attributes, compiled from an action.

use std::sync::Arc;

use profcol_component::Metadata;
use profcol_profile::{Attributes, Value, hex};
use regex::Regex;
use ring::digest::{SHA256, digest};

use super::config::{Action, ActionKind, Target};
use crate::values::{text, value_of};
use profcol_metadata::attributes::{replace, set};

pub(super) enum Change {
    Set {
        key: Arc<str>,
        source: Source,
        when: SetCondition,
    },
    Delete(Keys),
    Hash(Keys),
    Extract {
        key: String,
        pattern: Regex,
    },
    Convert {
        key: String,
        to: Target,
    },
}

/// The source of a value.
pub(super) enum Source {
    Value(Value),
    Attribute(String),
    Metadata(String),
}

/// The condition for setting an attribute.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum SetCondition {
    Missing,
    Present,
    Always,
}

/// The selected attributes.
pub(super) struct Keys {
    /// Empty means none.
    key: String,
    pattern: Option<Regex>,
}

impl Change {
    /// `None` for an action that validation refuses.
    pub(super) fn new(action: &Action) -> Option<Self> {
        let key = action.key.clone();
        let keys = || {
            Some(Keys {
                key: action.key.clone(),
                pattern: match action.pattern.as_str() {
                    "" => None,
                    pattern => Some(Regex::new(pattern).ok()?),
                },
            })
        };
        let set = |when| {
            Some(Self::Set {
                key: action.key.as_str().into(),
                source: Source::new(action),
                when,
            })
        };
        match action.action? {
            ActionKind::Insert => set(SetCondition::Missing),
            ActionKind::Update => set(SetCondition::Present),
            ActionKind::Upsert => set(SetCondition::Always),
            ActionKind::Delete => keys().map(Self::Delete),
            ActionKind::Hash => keys().map(Self::Hash),
            ActionKind::Extract => Some(Self::Extract {
                key,
                pattern: Regex::new(&action.pattern).ok()?,
            }),
            ActionKind::Convert => Some(Self::Convert {
                key,
                to: action.converted_type?,
            }),
        }
    }

    /// Returns whether anything changed.
    pub(super) fn apply(&self, attributes: &mut Attributes, metadata: &Metadata) -> bool {
        match self {
            Self::Set { key, source, when } => {
                let present = position(attributes, key).is_some();
                let due = match when {
                    SetCondition::Missing => !present,
                    SetCondition::Present => present,
                    SetCondition::Always => true,
                };
                due && match source.value(attributes, metadata) {
                    Some(value) => set(attributes, Arc::clone(key), value),
                    None => false,
                }
            }
            Self::Delete(keys) => {
                let before = attributes.len();
                attributes.retain(|attribute| !keys.mean(&attribute.key));
                attributes.len() != before
            }
            Self::Hash(keys) => {
                let meant = attributes.iter_mut().filter(|it| keys.mean(&it.key));
                let mut any = false;
                for attribute in meant {
                    attribute.value = hash(&attribute.value);
                    any = true;
                }
                any
            }
            Self::Extract { key, pattern } => extract(attributes, key, pattern),
            Self::Convert { key, to } => {
                let Some(attribute) = attributes.iter_mut().find(|it| *it.key == **key) else {
                    return false;
                };
                let converted = to.convert(&attribute.value);
                converted.is_some_and(|value| replace(&mut attribute.value, value))
            }
        }
    }
}

impl Source {
    fn new(action: &Action) -> Self {
        if let Some(value) = &action.value {
            return Self::Value(value_of(value));
        }
        if !action.from_attribute.is_empty() {
            return Self::Attribute(action.from_attribute.clone());
        }
        let name = action.from_context.strip_prefix("metadata.");
        Self::Metadata(name.unwrap_or(&action.from_context).to_owned())
    }

    fn value(&self, attributes: &Attributes, metadata: &Metadata) -> Option<Value> {
        match self {
            Self::Value(value) => Some(value.clone()),
            Self::Attribute(key) => {
                position(attributes, key).map(|position| attributes[position].value.clone())
            }
            Self::Metadata(name) => match metadata.get(name) {
                [] => None,
                values => Some(Value::Str(values.join(";").into())),
            },
        }
    }
}

impl Keys {
    fn mean(&self, key: &str) -> bool {
        (!self.key.is_empty() && self.key == key)
            || self
                .pattern
                .as_ref()
                .is_some_and(|pattern| pattern.is_match(key))
    }
}

impl Target {
    /// `None` if the value already has the type or cannot be converted.
    fn convert(self, value: &Value) -> Option<Value> {
        match (self, value) {
            (Self::String, Value::Str(_)) => None,
            (Self::String, value) => Some(Value::Str(text(value).into())),
            (Self::Int, Value::Double(number)) => Some(Value::Int(*number as i64)),
            (Self::Int, Value::Bool(flag)) => Some(Value::Int(i64::from(*flag))),
            (Self::Int, Value::Str(text)) => text.parse().ok().map(Value::Int),
            (Self::Double, Value::Int(number)) => Some(Value::Double(*number as f64)),
            (Self::Double, Value::Bool(flag)) => Some(Value::Double(f64::from(u8::from(*flag)))),
            (Self::Double, Value::Str(text)) => text.parse().ok().map(Value::Double),
            (Self::Int | Self::Double, _) => None,
        }
    }
}

fn position(attributes: &Attributes, key: &str) -> Option<usize> {
    attributes
        .iter()
        .position(|attribute| *attribute.key == *key)
}

/// The Collector's hash of a value: of text as it is, of numbers as eight bytes, of a boolean as
/// one byte. Other types and empty text become empty text.
fn hash(value: &Value) -> Value {
    let bytes: &[u8] = match value {
        Value::Str(text) => text.as_bytes(),
        Value::Bool(flag) => &[u8::from(*flag)],
        Value::Int(number) => &number.to_le_bytes(),
        Value::Double(number) => &number.to_bits().to_le_bytes(),
        Value::Empty | Value::Bytes(_) | Value::Array(_) | Value::Map(_) => &[],
    };
    if bytes.is_empty() {
        return Value::Str("".into());
    }
    Value::Str(hex(digest(&SHA256, bytes).as_ref()).into())
}

fn extract(attributes: &mut Attributes, key: &str, pattern: &Regex) -> bool {
    let Some(position) = position(attributes, key) else {
        return false;
    };
    let Value::Str(text) = attributes[position].value.clone() else {
        return false;
    };
    let Some(captures) = pattern.captures(&text) else {
        return false;
    };
    let mut any = false;
    for (name, part) in pattern.capture_names().zip(captures.iter()).skip(1) {
        if let Some(name) = name {
            let part = part.map_or("", |part| part.as_str());
            any |= set(attributes, name, Value::from(part));
        }
    }
    any
}
