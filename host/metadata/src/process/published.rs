//! Resource attributes that a process publishes: the payload of its process context.

use profcol_profile::{Attributes, KeyValue, Value};
use prost::Message;

use crate::attributes::find;

/// More than SDKs publish; the rest is dropped.
const MAX_ATTRIBUTES: usize = 64;
const MAX_KEY_BYTES: usize = 256;
const MAX_VALUE_BYTES: usize = 1024;

/// What profcol finds out by itself: a process must not pass for another one.
const RESERVED: [&str; 8] = [
    "cloud.",
    "container.",
    "host.",
    "k8s.",
    "os.",
    "process.",
    "systemd.",
    "thread.",
];

/// `opentelemetry.proto.common.v1.ProcessContext`, as far as it is used.
#[derive(Clone, PartialEq, Message)]
struct ProcessContext {
    #[prost(message, optional, tag = "1")]
    resource: Option<Resource>,
}

/// `opentelemetry.proto.resource.v1.Resource`
#[derive(Clone, PartialEq, Message)]
struct Resource {
    #[prost(message, repeated, tag = "1")]
    attributes: Vec<Attribute>,
}

/// `opentelemetry.proto.common.v1.KeyValue`
#[derive(Clone, PartialEq, Message)]
struct Attribute {
    #[prost(string, tag = "1")]
    key: String,
    #[prost(message, optional, tag = "2")]
    value: Option<AnyValue>,
}

/// `opentelemetry.proto.common.v1.AnyValue` without arrays, maps and bytes.
#[derive(Clone, PartialEq, Message)]
struct AnyValue {
    #[prost(oneof = "Scalar", tags = "1, 2, 3, 4")]
    scalar: Option<Scalar>,
}

#[derive(Clone, PartialEq, prost::Oneof)]
enum Scalar {
    #[prost(string, tag = "1")]
    Text(String),
    #[prost(bool, tag = "2")]
    Bool(bool),
    #[prost(int64, tag = "3")]
    Int(i64),
    #[prost(double, tag = "4")]
    Double(f64),
}

/// The attributes of the payload that a process may set.
pub(super) fn attributes(payload: &[u8]) -> Result<Attributes, prost::DecodeError> {
    let resource = ProcessContext::decode(payload)?.resource;
    let mut attributes = Attributes::new();
    for Attribute { key, value } in resource.unwrap_or_default().attributes {
        let is_reserved = RESERVED.iter().any(|prefix| key.starts_with(prefix));
        let is_short = (1..=MAX_KEY_BYTES).contains(&key.len());
        if is_reserved || !is_short || find(&attributes, &key).is_some() {
            continue;
        }
        if let Some(value) = value.and_then(|it| it.scalar).and_then(bounded) {
            attributes.push(KeyValue::new(&key, value));
        }
        if attributes.len() == MAX_ATTRIBUTES {
            break;
        }
    }
    Ok(attributes)
}

fn bounded(scalar: Scalar) -> Option<Value> {
    match scalar {
        Scalar::Text(text) => (text.len() <= MAX_VALUE_BYTES).then(|| Value::from(text.as_str())),
        Scalar::Bool(bool) => Some(bool.into()),
        Scalar::Int(number) => Some(number.into()),
        Scalar::Double(number) => Some(Value::Double(number)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn payload(attributes: impl IntoIterator<Item = (String, Scalar)>) -> Vec<u8> {
        let attributes = attributes.into_iter().map(|(key, scalar)| Attribute {
            key,
            value: Some(AnyValue {
                scalar: Some(scalar),
            }),
        });
        let resource = Some(Resource {
            attributes: attributes.collect(),
        });
        ProcessContext { resource }.encode_to_vec()
    }

    #[test]
    fn takes_what_describes_the_service_and_nothing_else() {
        let text = |key: &str, value: &str| (key.to_owned(), Scalar::Text(value.to_owned()));
        let found = attributes(&payload([
            text("service.name", "shop"),
            text("service.name", "twice"),
            text("k8s.pod.name", "forged"),
            text("process.pid", "1"),
            text("", "nameless"),
            text("long", &"x".repeat(MAX_VALUE_BYTES + 1)),
            ("shard".to_owned(), Scalar::Int(-7)),
            ("canary".to_owned(), Scalar::Bool(true)),
        ]));
        let expected: Attributes = [
            KeyValue::new("service.name", "shop"),
            KeyValue::new("shard", -7),
            KeyValue::new("canary", true),
        ]
        .into_iter()
        .collect();
        assert_eq!(found.unwrap(), expected);
    }

    #[test]
    fn the_number_of_attributes_is_bounded() {
        let many = (0..1000).map(|number| (format!("key.{number}"), Scalar::Int(number)));
        assert_eq!(attributes(&payload(many)).unwrap().len(), MAX_ATTRIBUTES);
    }

    #[test]
    fn damage_is_an_error() {
        let whole = payload([("a".to_owned(), Scalar::Bool(true))]);
        attributes(&whole[..whole.len() - 1]).unwrap_err();
        attributes(b"\xff\xff").unwrap_err();
    }
}
