//! Values that settings are made of.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A span of time, written `1m30s`.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Duration(pub std::time::Duration);

impl Duration {
    pub const fn from_secs(seconds: u64) -> Duration {
        Duration(std::time::Duration::from_secs(seconds))
    }

    /// The time, where 0 stands for "no limit".
    pub fn limit(self) -> Option<std::time::Duration> {
        (!self.0.is_zero()).then_some(self.0)
    }
}

impl fmt::Debug for Duration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Serialize for Duration {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&format!("{}ns", self.0.as_nanos()))
    }
}

impl<'de> Deserialize<'de> for Duration {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
        let text = String::deserialize(deserializer)?;
        let (number, unit) =
            text.split_at(text.find(|c: char| c.is_alphabetic()).unwrap_or(text.len()));
        let nanos = match unit {
            "ns" => 1,
            "ms" => 1_000_000,
            "s" => 1_000_000_000,
            "m" => 60_000_000_000,
            "h" => 3_600_000_000_000,
            _ => 0u64,
        };
        let number: u64 = number.parse().map_err(serde::de::Error::custom)?;
        Ok(Duration(std::time::Duration::from_nanos(number * nanos)))
    }
}

impl JsonSchema for Duration {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Duration".into()
    }
    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({ "type": "string" })
    }
}

/// Text that is never shown.
#[derive(Clone, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct Secret(String);

impl Secret {
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl From<&str> for Secret {
    fn from(text: &str) -> Secret {
        Secret(text.to_owned())
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[REDACTED]")
    }
}

impl Serialize for Secret {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str("[REDACTED]")
    }
}

/// Header names and their values, in the order given.
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
#[serde(transparent)]
pub struct Headers(pub Vec<(String, Secret)>);

impl<'de> Deserialize<'de> for Headers {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Headers, D::Error> {
        let map = std::collections::BTreeMap::<String, Secret>::deserialize(deserializer)?;
        Ok(Headers(map.into_iter().collect()))
    }
}

/// Checks names and values once, for use in requests and answers.
pub(crate) fn header_map(headers: &Headers) -> Result<http::HeaderMap, String> {
    let mut map = http::HeaderMap::new();
    for (name, value) in &headers.0 {
        let name: http::HeaderName = name
            .parse()
            .map_err(|_| format!("{name:?} is not a valid header name"))?;
        let value = http::HeaderValue::from_str(value.expose()).map_err(|_| {
            format!("the value of header `{name}` holds characters that headers cannot carry")
        })?;
        map.append(name, value);
    }
    Ok(map)
}
