//! Header lists: a map, or a list of name and value as in newer Collectors.

use std::borrow::Cow;
use std::fmt;

use serde::de::{self, Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde::ser::{Serialize, Serializer};

use super::Secret;

/// Headers with secret values, in source order. Reads `{name: value}` and `[{name: …, value: …}]`, writes the latter.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Headers(pub Vec<(String, Secret)>);

#[derive(serde::Serialize, serde::Deserialize)]
struct Pair<S> {
    name: String,
    value: S,
}

impl Headers {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn iter(&self) -> impl Iterator<Item = (&str, &Secret)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value))
    }
}

impl Serialize for Headers {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.0.iter().map(|(name, value)| Pair {
            name: name.clone(),
            value,
        }))
    }
}

impl<'de> Deserialize<'de> for Headers {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Reader;
        impl<'de> Visitor<'de> for Reader {
            type Value = Headers;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a map of names to values, or a list of {name, value}")
            }

            fn visit_unit<E: de::Error>(self) -> Result<Headers, E> {
                Ok(Headers::default())
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Headers, A::Error> {
                let mut headers = Vec::new();
                while let Some(entry) = map.next_entry()? {
                    headers.push(entry);
                }
                Ok(Headers(headers))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Headers, A::Error> {
                let mut headers = Vec::new();
                while let Some(Pair { name, value }) = seq.next_element()? {
                    headers.push((name, value));
                }
                Ok(Headers(headers))
            }
        }
        deserializer.deserialize_any(Reader)
    }
}

impl schemars::JsonSchema for Headers {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Headers".into()
    }

    fn json_schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
        let value = Secret::json_schema(generator);
        let mut listed = value.clone();
        listed.insert("description".to_owned(), "The header's value.".into());
        schemars::json_schema!({ "anyOf": [
            { "type": "object", "additionalProperties": value },
            { "type": "array", "items": {
                "type": "object",
                "properties": {
                    "name": { "type": "string", "description": "The header's name." },
                    "value": listed,
                },
                "required": ["name", "value"],
            } },
        ] })
    }
}
