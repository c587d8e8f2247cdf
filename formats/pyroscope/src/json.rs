//! Protobuf JSON: 64-bit integers are strings, defaults are omitted, `null` is the default.

use std::fmt;
use std::marker::PhantomData;

use serde::de::{DeserializeOwned, Error, Unexpected, Visitor};
use serde::ser::SerializeSeq;
use serde::{Deserializer, Serializer};
use serde_json::Value;

/// An empty body is an empty message.
pub fn read<T: DeserializeOwned + Default>(body: &[u8]) -> serde_json::Result<T> {
    if body.trim_ascii().is_empty() {
        return Ok(T::default());
    }
    let mut value: Value = serde_json::from_slice(body)?;
    if !value.is_object() {
        return Err(serde_json::Error::custom("expected a JSON object"));
    }
    remove_nulls(&mut value);
    serde_json::from_value(value)
}

/// `serde_json` bounds the depth.
fn remove_nulls(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.retain(|_, field| !field.is_null());
            fields.values_mut().for_each(remove_nulls);
        }
        Value::Array(items) => items.iter_mut().for_each(remove_nulls),
        _ => {}
    }
}

pub fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// A 64-bit integer as a string.
pub mod int64 {
    use super::*;

    pub fn serialize<S: Serializer>(value: &impl ToString, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&value.to_string())
    }

    /// Some clients write it as a number.
    pub fn deserialize<'a, D: Deserializer<'a>>(from: D) -> Result<i64, D::Error> {
        from.deserialize_any(Int64)
    }
}

/// 64-bit integers as strings.
pub mod int64s {
    use super::*;

    pub fn serialize<S: Serializer, T: ToString>(values: &[T], to: S) -> Result<S::Ok, S::Error> {
        let mut list = to.serialize_seq(Some(values.len()))?;
        for value in values {
            list.serialize_element(&value.to_string())?;
        }
        list.end()
    }
}

/// An optional one.
pub mod optional_int64 {
    use super::*;

    pub fn deserialize<'a, D: Deserializer<'a>>(from: D) -> Result<Option<i64>, D::Error> {
        from.deserialize_any(Int64).map(Some)
    }
}

/// An enum value by name or number.
pub trait Names {
    /// In the order of their numbers.
    const NAMES: &'static [&'static str];
}

pub fn enumeration<'a, N: Names, D: Deserializer<'a>>(from: D) -> Result<i32, D::Error> {
    from.deserialize_any(Enumeration::<N>(PhantomData))
}

pub fn optional_enumeration<'a, N: Names, D: Deserializer<'a>>(
    from: D,
) -> Result<Option<i32>, D::Error> {
    enumeration::<N, D>(from).map(Some)
}

struct Int64;

impl Visitor<'_> for Int64 {
    type Value = i64;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a 64-bit integer as a number or string")
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<i64, E> {
        Ok(number)
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<i64, E> {
        i64::try_from(number).map_err(|_| E::invalid_value(Unexpected::Unsigned(number), &self))
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<i64, E> {
        /// Larger integers are not all representable as floats.
        const EXACT: f64 = 9_007_199_254_740_992.0;
        if number.fract() != 0.0 || number.abs() > EXACT {
            return Err(E::invalid_value(Unexpected::Float(number), &self));
        }
        #[expect(clippy::cast_possible_truncation, reason = "the value is integral")]
        Ok(number as i64)
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<i64, E> {
        text.parse()
            .map_err(|_| E::invalid_value(Unexpected::Str(text), &self))
    }
}

struct Enumeration<N>(PhantomData<N>);

impl<N: Names> Visitor<'_> for Enumeration<N> {
    type Value = i32;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "one of {}", N::NAMES.join(", "))
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<i32, E> {
        i32::try_from(number).map_err(|_| E::invalid_value(Unexpected::Unsigned(number), &self))
    }

    fn visit_str<E: Error>(self, name: &str) -> Result<i32, E> {
        let position = N::NAMES.iter().position(|other| *other == name);
        let number = position.and_then(|number| i32::try_from(number).ok());
        number.ok_or_else(|| E::invalid_value(Unexpected::Str(name), &self))
    }
}
