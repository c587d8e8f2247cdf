//! The kinds of values a schema accepts.

use serde_json::Value as Json;

use super::{alternatives, follow};
use crate::node::{Node, Value};

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Types {
    pub(super) any: bool,
    pub(super) null: bool,
    pub(super) boolean: bool,
    pub(super) integer: bool,
    pub(super) number: bool,
    pub(super) string: bool,
    pub(super) array: bool,
    pub(super) object: bool,
    pub(super) duration: bool,
    /// A list of strings, which may be written as `a,b`.
    pub(super) split: bool,
}

pub(super) enum Expected {
    Scalar(&'static str),
    Section(&'static str),
}

impl Types {
    pub(super) fn of(root: &Json, schema: &Json) -> Types {
        let mut types = Types {
            duration: schema
                .get("format")
                .is_some_and(|format| format == "go-duration"),
            ..Types::default()
        };
        match schema.get("type") {
            Some(Json::String(name)) => types.allow(name),
            Some(Json::Array(names)) => names
                .iter()
                .filter_map(Json::as_str)
                .for_each(|name| types.allow(name)),
            _ if schema.get("enum").is_some() || schema.get("const").is_some() => {
                types.string = true
            }
            _ if alternatives(schema).is_some() => {}
            _ => types.any = true,
        }
        let items = schema.get("items").filter(|_| types.array);
        types.split = items.is_some_and(|items| {
            let items = Types::of_any(root, items);
            items.string || items.any
        });
        types
    }

    /// Follows references and alternatives.
    pub(super) fn of_any(root: &Json, schema: &Json) -> Types {
        let schema = follow(root, schema);
        let own = Types::of(root, schema);
        let inner = alternatives(schema).into_iter().flatten();
        inner
            .map(|option| Types::of_any(root, option))
            .fold(own, Types::or)
    }

    pub(super) fn allow(&mut self, name: &str) {
        match name {
            "null" => self.null = true,
            "boolean" => self.boolean = true,
            "integer" => self.integer = true,
            "number" => self.number = true,
            "string" => self.string = true,
            "array" => self.array = true,
            "object" => self.object = true,
            _ => {}
        }
    }

    pub(super) fn or(self, other: Types) -> Types {
        Types {
            any: self.any || other.any,
            null: self.null || other.null,
            boolean: self.boolean || other.boolean,
            integer: self.integer || other.integer,
            number: self.number || other.number,
            string: self.string || other.string,
            array: self.array || other.array,
            object: self.object || other.object,
            duration: self.duration || other.duration,
            split: self.split || other.split,
        }
    }

    /// If `lenient`, also accepts text for a list and an expanded scalar for text.
    pub(super) fn fits(&self, node: &Node, lenient: bool) -> bool {
        if self.any {
            return true;
        }
        let strictly = match node.value {
            Value::Null => self.null,
            Value::Bool(_) => self.boolean,
            Value::Int(_) | Value::UInt(_) | Value::Float(_) => self.integer || self.number,
            Value::Str(_) => self.string,
            Value::Seq(_) => self.array,
            Value::Map(_) => self.object,
        };
        let text = node.as_str().is_some();
        strictly
            || (lenient
                && text
                && (self.string || (self.split && matches!(node.value, Value::Str(_)))))
    }

    pub(super) fn name(&self) -> Expected {
        match self {
            Types { duration: true, .. } => Expected::Scalar("duration"),
            Types {
                object: true,
                array: true,
                ..
            } => Expected::Section("map or a list"),
            Types { object: true, .. } => Expected::Section("map"),
            Types { array: true, .. } => Expected::Section("list"),
            Types { integer: true, .. } => Expected::Scalar("int"),
            Types { number: true, .. } => Expected::Scalar("float64"),
            Types { boolean: true, .. } => Expected::Scalar("bool"),
            _ => Expected::Scalar("string"),
        }
    }

    pub(super) fn takes_number_or_bool(&self, value: &Value) -> bool {
        match value {
            Value::Bool(_) => self.boolean,
            Value::Int(_) => self.integer || self.number,
            Value::Float(_) => self.number,
            _ => false,
        }
    }
}

pub(super) fn integer_range(schema: &Json) -> (i128, i128) {
    let (low, high) = match schema.get("format").and_then(Json::as_str) {
        Some("uint8") => (0, i128::from(u8::MAX)),
        Some("uint16") => (0, i128::from(u16::MAX)),
        Some("uint32") => (0, i128::from(u32::MAX)),
        Some("uint64" | "uint") => (0, i128::from(u64::MAX)),
        Some("int8") => (i128::from(i8::MIN), i128::from(i8::MAX)),
        Some("int16") => (i128::from(i16::MIN), i128::from(i16::MAX)),
        Some("int32") => (i128::from(i32::MIN), i128::from(i32::MAX)),
        _ => (i128::from(i64::MIN), i128::from(i64::MAX)),
    };
    let bound = |key: &str| {
        let number = schema.get(key)?;
        number
            .as_i64()
            .map(i128::from)
            .or_else(|| number.as_u64().map(i128::from))
    };
    let low = bound("minimum").map_or(low, |minimum| low.max(minimum));
    let high = bound("maximum").map_or(high, |maximum| high.min(maximum));
    (low, high)
}
