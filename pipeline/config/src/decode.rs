//! Decodes a checked [`Node`] into a configuration type.
//!
//! The node already conforms to the schema, so only types with their own parsers can still fail. Such an error carries
//! the path and location of the value.

use std::fmt;

use serde::de::value::StrDeserializer;
use serde::de::{
    self, DeserializeOwned, DeserializeSeed, Deserializer, EnumAccess, IntoDeserializer, MapAccess,
    SeqAccess, VariantAccess, Visitor,
};

use crate::node::{Node, Value};
use crate::problem::Problem;
use crate::sources::Location;

pub fn decode<T: DeserializeOwned>(node: &Node) -> Result<T, Problem> {
    T::deserialize(Reader(node)).map_err(|error| Problem {
        path: error.path.into_iter().rev().collect(),
        message: error.message,
        at: Some(error.at.unwrap_or(node.at)),
        ..Problem::default()
    })
}

#[derive(Debug)]
struct Error {
    message: String,
    at: Option<Location>,
    /// Innermost segment first.
    path: Vec<String>,
}

impl Error {
    fn within(mut self, segment: impl Into<String>, at: Location) -> Self {
        self.path.push(segment.into());
        self.at.get_or_insert(at);
        self
    }
}

impl de::Error for Error {
    fn custom<T: fmt::Display>(message: T) -> Self {
        Error {
            message: message.to_string(),
            at: None,
            path: Vec::new(),
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Error {}

struct Reader<'a>(&'a Node);

impl<'de> Deserializer<'de> for Reader<'de> {
    type Error = Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match &self.0.value {
            Value::Null => visitor.visit_unit(),
            Value::Bool(b) => visitor.visit_bool(*b),
            Value::Int(i) => visitor.visit_i64(*i),
            Value::UInt(u) => visitor.visit_u64(*u),
            Value::Float(f) => visitor.visit_f64(*f),
            Value::Str(text) => visitor.visit_borrowed_str(text),
            Value::Seq(items) => visitor.visit_seq(Items {
                items: items.iter().enumerate(),
            }),
            Value::Map(map) => visitor.visit_map(Entries {
                entries: map.iter(),
                value: None,
            }),
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match &self.0.value {
            Value::Null => visitor.visit_none(),
            _ => visitor.visit_some(self),
        }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, Error> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        match &self.0.value {
            Value::Str(text) => visitor.visit_enum(text.as_str().into_deserializer()),
            Value::Map(map) => match map.first() {
                Some((key, entry)) if map.len() == 1 => visitor.visit_enum(Variant {
                    name: key,
                    node: &entry.node,
                }),
                _ => Err(de::Error::custom("expected a map with exactly one key")),
            },
            other => Err(de::Error::custom(format!(
                "expected type 'string', got unconvertible type '{}'",
                other.kind()
            ))),
        }
    }

    serde::forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit unit_struct seq tuple
        tuple_struct map struct identifier ignored_any
    }
}

struct Items<'a> {
    items: std::iter::Enumerate<std::slice::Iter<'a, Node>>,
}

impl<'de> SeqAccess<'de> for Items<'de> {
    type Error = Error;

    fn next_element_seed<T: DeserializeSeed<'de>>(
        &mut self,
        seed: T,
    ) -> Result<Option<T::Value>, Error> {
        let Some((index, node)) = self.items.next() else {
            return Ok(None);
        };
        let item = seed.deserialize(Reader(node));
        item.map(Some)
            .map_err(|error| error.within(index.to_string(), node.at))
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.items.len())
    }
}

struct Entries<'a> {
    entries: indexmap::map::Iter<'a, String, crate::node::MapEntry>,
    value: Option<(&'a str, &'a Node)>,
}

impl<'de> MapAccess<'de> for Entries<'de> {
    type Error = Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, Error> {
        let Some((key, entry)) = self.entries.next() else {
            return Ok(None);
        };
        self.value = Some((key, &entry.node));
        let deserializer: StrDeserializer<'de, Error> = key.as_str().into_deserializer();
        seed.deserialize(deserializer)
            .map(Some)
            .map_err(|mut error| {
                error.at.get_or_insert(entry.key_at);
                error
            })
    }

    fn next_value_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<T::Value, Error> {
        let (key, node) = self
            .value
            .take()
            .ok_or_else(|| de::Error::custom("value requested before its key"))?;
        seed.deserialize(Reader(node))
            .map_err(|error| error.within(key, node.at))
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.entries.len())
    }
}

/// An enum variant with data, written as a map with the variant's name as its only key.
struct Variant<'a> {
    name: &'a str,
    node: &'a Node,
}

impl<'de> EnumAccess<'de> for Variant<'de> {
    type Error = Error;
    type Variant = Self;

    fn variant_seed<V: DeserializeSeed<'de>>(self, seed: V) -> Result<(V::Value, Self), Error> {
        let deserializer: StrDeserializer<'de, Error> = self.name.into_deserializer();
        Ok((seed.deserialize(deserializer)?, self))
    }
}

impl<'de> VariantAccess<'de> for Variant<'de> {
    type Error = Error;

    fn unit_variant(self) -> Result<(), Error> {
        match &self.node.value {
            Value::Null => Ok(()),
            Value::Map(map) if map.is_empty() => Ok(()),
            _ => Err(self.located(de::Error::custom("takes no value"))),
        }
    }

    fn newtype_variant_seed<T: DeserializeSeed<'de>>(self, seed: T) -> Result<T::Value, Error> {
        seed.deserialize(Reader(self.node))
            .map_err(|error| self.located(error))
    }

    fn tuple_variant<V: Visitor<'de>>(self, _: usize, visitor: V) -> Result<V::Value, Error> {
        Reader(self.node)
            .deserialize_any(visitor)
            .map_err(|error| self.located(error))
    }

    fn struct_variant<V: Visitor<'de>>(
        self,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        Reader(self.node)
            .deserialize_any(visitor)
            .map_err(|error| self.located(error))
    }
}

impl Variant<'_> {
    fn located(&self, error: Error) -> Error {
        error.within(self.name, self.node.at)
    }
}
