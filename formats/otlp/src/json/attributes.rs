//! Attribute values and the attributes of resources and scopes.

use std::mem;
use std::sync::Arc;

use serde::de::MapAccess;

use super::bytes::from_base64;
use super::object::{Field, Message};
use profcol_profile::{Attributes, KeyValue, Value};

/// Reads a list of key-value pairs.
pub(super) fn read_attributes<'de, M: MapAccess<'de>>(
    field: Field<'_, M>,
    attributes: &mut Attributes,
) -> Result<(), M::Error> {
    field.rows(&mut Entry::default(), |entry| {
        let Entry { key, value } = mem::take(entry);
        attributes.push(KeyValue { key, value });
    })
}

#[derive(Default)]
struct Entry {
    key: Arc<str>,
    value: Value,
}

impl Message for Entry {
    fn read<'de, M: MapAccess<'de>>(
        &mut self,
        name: &str,
        field: Field<'_, M>,
    ) -> Result<(), M::Error> {
        match name {
            "key" => {
                if let Some(key) = field.text()? {
                    self.key = key;
                }
            }
            "keyStrindex" => {
                // Row 0 means "not set" and does not override a plain key.
                if let Some(key) = field.string_reference()?.filter(|key| !key.is_empty()) {
                    self.key = key;
                }
            }
            "value" => drop(field.message(&mut self.value)?),
            _ => field.skip()?,
        }
        Ok(())
    }
}

impl Message for Value {
    fn read<'de, M: MapAccess<'de>>(
        &mut self,
        name: &str,
        field: Field<'_, M>,
    ) -> Result<(), M::Error> {
        let value = match name {
            "stringValue" => field.text()?.map(Value::Str),
            "stringValueStrindex" => field.string_reference()?.map(Value::Str),
            "boolValue" => field.boolean()?.map(Value::Bool),
            "intValue" => field.optional_integer()?.map(Value::Int),
            "doubleValue" => field.double()?.map(Value::Double),
            "bytesValue" => field
                .parsed(from_base64)?
                .map(|bytes| Value::Bytes(bytes.into())),
            "arrayValue" => {
                let mut array = Array::default();
                let is_set = field.message(&mut array)?;
                is_set.then(|| Value::Array(array.0.into()))
            }
            "kvlistValue" => {
                let mut map = Map::default();
                let is_set = field.message(&mut map)?;
                is_set.then(|| Value::Map(map.0.into()))
            }
            _ => return field.skip(),
        };
        if let Some(value) = value {
            *self = value;
        }
        Ok(())
    }
}

#[derive(Default)]
struct Array(Vec<Value>);

impl Message for Array {
    fn read<'de, M: MapAccess<'de>>(
        &mut self,
        name: &str,
        field: Field<'_, M>,
    ) -> Result<(), M::Error> {
        match name {
            "values" => field.rows(&mut Value::default(), |value| {
                self.0.push(mem::take(value));
            }),
            _ => field.skip(),
        }
    }
}

#[derive(Default)]
struct Map(Attributes);

impl Message for Map {
    fn read<'de, M: MapAccess<'de>>(
        &mut self,
        name: &str,
        field: Field<'_, M>,
    ) -> Result<(), M::Error> {
        match name {
            "values" => read_attributes(field, &mut self.0),
            _ => field.skip(),
        }
    }
}
