//! Sections enabled by their presence.

use std::borrow::Cow;
use std::ops::{Deref, DerefMut};

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// In the schema of a section: an empty key enables the section with its defaults.
pub const NULL_IS_PRESENT: &str = "x-null-is-present";

/// A section enabled by its key, even an empty one: `protocols: {grpc: }` enables grpc with its defaults, omitting
/// `grpc` does not. (For all other fields an empty key keeps the default.)
///
/// Needs `#[serde(default)]` on the field or its struct, as all fields have here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Present<T>(pub Option<T>);

impl<T> Default for Present<T> {
    fn default() -> Self {
        Present(None)
    }
}

impl<T> Deref for Present<T> {
    type Target = Option<T>;

    fn deref(&self) -> &Option<T> {
        &self.0
    }
}

impl<T> DerefMut for Present<T> {
    fn deref_mut(&mut self) -> &mut Option<T> {
        &mut self.0
    }
}

impl<T> From<T> for Present<T> {
    fn from(value: T) -> Self {
        Present(Some(value))
    }
}

impl<T: Serialize> Serialize for Present<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(serializer)
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Present<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        T::deserialize(deserializer).map(Present::from)
    }
}

impl<T: schemars::JsonSchema> schemars::JsonSchema for Present<T> {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        format!("Present_{}", T::schema_name()).into()
    }

    fn json_schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
        let mut schema = <Option<T>>::json_schema(generator);
        schema.insert(NULL_IS_PRESENT.to_owned(), true.into());
        schema
    }
}
