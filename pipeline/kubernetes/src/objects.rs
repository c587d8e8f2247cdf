//! What all API objects have in common. Only the fields in use; all others are skipped while parsing, however large they
//! are.

use std::collections::BTreeMap;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

/// Labels or annotations.
pub type StringMap = BTreeMap<String, String>;

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Meta {
    pub name: String,
    pub namespace: String,
    pub uid: String,
    pub resource_version: String,
    #[serde(deserialize_with = "or_default")]
    pub labels: StringMap,
    #[serde(deserialize_with = "or_default")]
    pub annotations: StringMap,
    #[serde(deserialize_with = "or_default")]
    pub owner_references: Vec<Owner>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Owner {
    pub kind: String,
    pub name: String,
    pub uid: String,
    #[serde(deserialize_with = "or_default")]
    pub controller: bool,
}

/// For objects whose metadata alone is used.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct MetaOnly {
    pub metadata: Meta,
}

/// An object, or why it failed to decode: an unexpected object must not affect others.
#[derive(Debug)]
pub struct Read<T>(pub serde_json::Result<T>);

impl<'de, T: DeserializeOwned> Deserialize<'de> for Read<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Box::<RawValue>::deserialize(deserializer)?;
        Ok(Self(serde_json::from_str(text.get())))
    }
}

/// A list, or a page of one.
#[derive(Debug, Deserialize)]
#[serde(bound = "T: DeserializeOwned")]
pub struct Page<T> {
    #[serde(default)]
    pub metadata: PageMeta,
    #[serde(default = "Vec::new", deserialize_with = "or_default")]
    pub items: Vec<Read<T>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct PageMeta {
    pub resource_version: String,
    #[serde(rename = "continue")]
    pub next: String,
}

pub trait Object {
    fn meta(&self) -> &Meta;
}

impl Object for MetaOnly {
    fn meta(&self) -> &Meta {
        &self.metadata
    }
}

impl Meta {
    /// The owner that controls it.
    pub fn controller(&self) -> Option<&Owner> {
        self.owner_references.iter().find(|owner| owner.controller)
    }
}

/// Treats `null` like a missing field.
pub fn or_default<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Default + Deserialize<'de>,
{
    Option::deserialize(deserializer).map(Option::unwrap_or_default)
}
