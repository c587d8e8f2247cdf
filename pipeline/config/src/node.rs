//! The configuration as a tree with the source location of every value.
//!
//! YAML text becomes a [`Node`]; merging, expansion and checking work on nodes, so that any later problem can show the
//! line that caused it, even if that line came from an environment variable.

use std::sync::Arc;

use indexmap::IndexMap;

use crate::sources::Location;

/// Maximum nesting depth, which keeps recursive walks (and `Drop`) from overflowing the stack.
pub const MAX_DEPTH: usize = 128;

#[derive(Clone, Debug, PartialEq)]
pub struct Node {
    pub value: Value,
    pub at: Location,
    /// The expanded text, if the whole value is one `${…}`. String fields take it instead of the value, so that
    /// `${env:ZIP}` with `ZIP=0123` is `0123` for them although YAML reads the number 83.
    pub raw: Option<Arc<str>>,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    Null,
    Bool(bool),
    Int(i64),
    /// Only integers above `i64::MAX`.
    UInt(u64),
    Float(f64),
    Str(String),
    Seq(Vec<Node>),
    Map(Map),
}

/// The entries of a map in source order.
pub type Map = IndexMap<String, MapEntry>;

#[derive(Clone, Debug, PartialEq)]
pub struct MapEntry {
    pub key_at: Location,
    pub node: Node,
}

impl Node {
    pub fn new(value: Value, at: Location) -> Self {
        Node {
            value,
            at,
            raw: None,
        }
    }

    pub fn is_null(&self) -> bool {
        matches!(self.value, Value::Null)
    }

    pub fn as_map(&self) -> Option<&Map> {
        match &self.value {
            Value::Map(map) => Some(map),
            _ => None,
        }
    }

    pub fn as_seq(&self) -> Option<&[Node]> {
        match &self.value {
            Value::Seq(items) => Some(items),
            _ => None,
        }
    }

    /// The text of a string, or of a value that is one `${…}`.
    pub fn as_str(&self) -> Option<&str> {
        match (&self.raw, &self.value) {
            (Some(raw), _) => Some(raw),
            (None, Value::Str(text)) => Some(text),
            _ => None,
        }
    }

    pub fn get(&self, key: &str) -> Option<&Node> {
        Some(&self.as_map()?.get(key)?.node)
    }

    /// The location of the deepest existing part of `path`: its value if the path exists, else the key of the last map
    /// on it.
    pub fn locate<'a>(&self, path: impl IntoIterator<Item = &'a str>) -> Location {
        let mut node = self;
        let mut at = self.at;
        for segment in path {
            let (next, location) = match &node.value {
                Value::Map(map) => match map.get(segment) {
                    Some(entry) if is_scalar(&entry.node.value) => (&entry.node, entry.node.at),
                    Some(entry) => (&entry.node, entry.key_at),
                    None => break,
                },
                Value::Seq(items) => match segment.parse().ok().and_then(|i: usize| items.get(i)) {
                    Some(item) => (item, item.at),
                    None => break,
                },
                _ => break,
            };
            node = next;
            at = location;
        }
        at
    }

    /// The same data without locations, for printing.
    pub fn to_json(&self) -> serde_json::Value {
        use serde_json::Value as Json;
        match &self.value {
            Value::Null => Json::Null,
            Value::Bool(b) => Json::Bool(*b),
            Value::Int(i) => Json::from(*i),
            Value::UInt(u) => Json::from(*u),
            Value::Float(f) => Json::from(*f),
            Value::Str(text) => Json::from(text.as_str()),
            Value::Seq(items) => items.iter().map(Node::to_json).collect(),
            Value::Map(map) => map
                .iter()
                .map(|(key, entry)| (key.clone(), entry.node.to_json()))
                .collect(),
        }
    }
}

impl Value {
    /// The Collector's name for this kind of value in messages.
    pub fn kind(&self) -> &'static str {
        match self {
            Value::Null => "null",
            Value::Bool(_) => "bool",
            Value::Int(_) => "int",
            Value::UInt(_) => "uint64",
            Value::Float(_) => "float64",
            Value::Str(_) => "string",
            Value::Seq(_) => "list",
            Value::Map(_) => "map",
        }
    }
}

fn is_scalar(value: &Value) -> bool {
    !matches!(value, Value::Map(_) | Value::Seq(_) | Value::Null)
}
