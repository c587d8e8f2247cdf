//! Attribute values: OTLP's `AnyValue`.

use std::hash::{Hash, Hasher};
use std::sync::Arc;

/// A value; cheap to clone.
///
/// Floats compare bitwise, so that values can be keys.
#[derive(Clone, Debug, Default)]
pub enum Value {
    #[default]
    Empty,
    Str(Arc<str>),
    Bool(bool),
    Int(i64),
    Double(f64),
    Bytes(Arc<[u8]>),
    Array(Arc<[Value]>),
    Map(Arc<[KeyValue]>),
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct KeyValue {
    pub key: Arc<str>,
    pub value: Value,
}

/// Attributes of a resource or scope, in original order.
pub type Attributes = Vec<KeyValue>;

impl Value {
    pub fn as_str(&self) -> Option<&str> {
        match self {
            Value::Str(text) => Some(text),
            _ => None,
        }
    }

    pub fn as_int(&self) -> Option<i64> {
        match self {
            Value::Int(number) => Some(*number),
            _ => None,
        }
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Value::Str(text.into())
    }
}

impl From<i64> for Value {
    fn from(number: i64) -> Self {
        Value::Int(number)
    }
}

impl From<bool> for Value {
    fn from(flag: bool) -> Self {
        Value::Bool(flag)
    }
}

impl KeyValue {
    pub fn new(key: &str, value: impl Into<Value>) -> Self {
        Self {
            key: key.into(),
            value: value.into(),
        }
    }
}

impl PartialEq for Value {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Value::Empty, Value::Empty) => true,
            (Value::Str(a), Value::Str(b)) => a == b,
            (Value::Bool(a), Value::Bool(b)) => a == b,
            (Value::Int(a), Value::Int(b)) => a == b,
            (Value::Double(a), Value::Double(b)) => a.to_bits() == b.to_bits(),
            (Value::Bytes(a), Value::Bytes(b)) => a == b,
            (Value::Array(a), Value::Array(b)) => a == b,
            (Value::Map(a), Value::Map(b)) => a == b,
            _ => false,
        }
    }
}

impl Eq for Value {}

impl Hash for Value {
    fn hash<H: Hasher>(&self, state: &mut H) {
        std::mem::discriminant(self).hash(state);
        match self {
            Value::Empty => {}
            Value::Str(text) => text.hash(state),
            Value::Bool(flag) => flag.hash(state),
            Value::Int(number) => number.hash(state),
            Value::Double(number) => number.to_bits().hash(state),
            Value::Bytes(bytes) => bytes.hash(state),
            Value::Array(items) => items.hash(state),
            Value::Map(entries) => entries.hash(state),
        }
    }
}

/// Bytes as text, such as an ID.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
