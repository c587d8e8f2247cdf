//! Numbers of the protobuf JSON mapping, bare or quoted, and parsed strings.

use std::fmt;
use std::marker::PhantomData;

use serde::de::{DeserializeSeed, Deserializer, Error, Unexpected, Visitor};

/// An integer, or a [`Row`].
pub(super) struct Integer<T>(PhantomData<T>);

/// A row index: a non-negative `int32`.
#[derive(Clone, Copy)]
pub(super) struct Row(pub u32);

/// A double.
pub(super) struct Double;

/// A string and its parse function.
pub(super) struct Text<F>(pub F);

pub(super) trait IntegerVisitor: TryFrom<i64> + TryFrom<u64> {
    const EXPECTED: &'static str;
}

impl IntegerVisitor for u64 {
    const EXPECTED: &'static str = "an unsigned 64-bit integer, bare or quoted";
}

impl IntegerVisitor for i64 {
    const EXPECTED: &'static str = "a 64-bit integer, bare or quoted";
}

impl IntegerVisitor for u32 {
    const EXPECTED: &'static str = "an unsigned 32-bit integer";
}

impl IntegerVisitor for Row {
    const EXPECTED: &'static str = "an index from 0 to 2147483647";
}

impl TryFrom<i64> for Row {
    type Error = std::num::TryFromIntError;

    fn try_from(number: i64) -> Result<Self, Self::Error> {
        Ok(Self(i32::try_from(number)?.try_into()?))
    }
}

impl TryFrom<u64> for Row {
    type Error = std::num::TryFromIntError;

    fn try_from(number: u64) -> Result<Self, Self::Error> {
        Ok(Self(i32::try_from(number)?.try_into()?))
    }
}

// === impl Integer ===

impl<T> Default for Integer<T> {
    fn default() -> Self {
        Self(PhantomData)
    }
}

impl<'de, T: IntegerVisitor> DeserializeSeed<'de> for Integer<T> {
    type Value = T;

    fn deserialize<D: Deserializer<'de>>(self, input: D) -> Result<T, D::Error> {
        input.deserialize_any(self)
    }
}

impl<T: IntegerVisitor> Visitor<'_> for Integer<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(T::EXPECTED)
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<T, E> {
        T::try_from(number).map_err(|_| E::invalid_value(Unexpected::Unsigned(number), &self))
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<T, E> {
        T::try_from(number).map_err(|_| E::invalid_value(Unexpected::Signed(number), &self))
    }

    /// `1.0` and `1e3` are integers; above 2^53 doubles are not exact.
    fn visit_f64<E: Error>(self, number: f64) -> Result<T, E> {
        const EXACT: f64 = 9_007_199_254_740_992.0;
        if number.fract() == 0.0 && number.abs() <= EXACT {
            self.visit_i64(number as i64)
        } else {
            Err(E::invalid_value(Unexpected::Float(number), &self))
        }
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<T, E> {
        if let Ok(number) = text.parse() {
            self.visit_u64(number)
        } else if let Ok(number) = text.parse() {
            self.visit_i64(number)
        } else {
            Err(E::invalid_value(Unexpected::Str(text), &self))
        }
    }
}

// === impl Double ===

impl<'de> DeserializeSeed<'de> for Double {
    type Value = f64;

    fn deserialize<D: Deserializer<'de>>(self, input: D) -> Result<f64, D::Error> {
        input.deserialize_any(self)
    }
}

impl Visitor<'_> for Double {
    type Value = f64;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a number, bare or quoted, \"NaN\", \"Infinity\" or \"-Infinity\"")
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<f64, E> {
        Ok(number as f64)
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<f64, E> {
        Ok(number as f64)
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<f64, E> {
        Ok(number)
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<f64, E> {
        match text {
            "NaN" => Some(f64::NAN),
            "Infinity" => Some(f64::INFINITY),
            "-Infinity" => Some(f64::NEG_INFINITY),
            // Rust also parses "inf" and "nan", which the JSON mapping does not allow.
            _ if text.ends_with(|last: char| last.is_ascii_digit()) => text.parse().ok(),
            _ => None,
        }
        .ok_or_else(|| E::invalid_value(Unexpected::Str(text), &self))
    }
}

// === impl Text ===

impl<'de, T, F: FnOnce(&str) -> Result<T, String>> DeserializeSeed<'de> for Text<F> {
    type Value = T;

    fn deserialize<D: Deserializer<'de>>(self, input: D) -> Result<T, D::Error> {
        input.deserialize_str(self)
    }
}

impl<T, F: FnOnce(&str) -> Result<T, String>> Visitor<'_> for Text<F> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("text")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<T, E> {
        (self.0)(text).map_err(E::custom)
    }
}
