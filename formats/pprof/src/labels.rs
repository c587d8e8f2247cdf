//! Converts attributes to pprof labels.

use std::borrow::Cow;
use std::collections::BTreeSet;

use profcol_otlp::json::{push_hex, to_base64, value_text};
use profcol_profile::{Interner, Link, StringIdx, Value};

/// Which attributes become sample labels.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LabelSelection {
    pub resource: Keys,
    pub profile: Keys,
    pub sample: Keys,
    /// Whether the span link of a sample becomes the labels `trace_id` and `span_id`.
    pub links: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Keys {
    #[default]
    All,
    Only(BTreeSet<String>),
    AllBut(BTreeSet<String>),
}

/// A label with its strings in the string table of the new file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Label {
    pub key: StringIdx,
    pub text: StringIdx,
    pub number: i64,
    pub unit: StringIdx,
}

impl Default for LabelSelection {
    fn default() -> Self {
        Self {
            resource: Keys::All,
            profile: Keys::All,
            sample: Keys::All,
            links: true,
        }
    }
}

impl Keys {
    pub fn none() -> Self {
        Self::Only(BTreeSet::new())
    }

    pub fn contains(&self, key: &str) -> bool {
        match self {
            Self::All => true,
            Self::Only(keys) => keys.contains(key),
            Self::AllBut(keys) => !keys.contains(key),
        }
    }
}

/// Whether the value is OpenTelemetry's default for an unnamed service.
pub(super) fn is_unknown_service(key: &str, value: &Value) -> bool {
    key == "service.name"
        && value
            .as_str()
            .is_some_and(|name| name.starts_with("unknown_service"))
}

/// Adds the labels of an attribute: one, or one per item of an array.
pub(super) fn push_labels(
    labels: &mut Vec<Label>,
    strings: &mut Interner,
    key: &str,
    value: &Value,
    unit: &str,
) {
    if let Value::Array(values) = value {
        for value in values.iter() {
            labels.extend(label(strings, key, value, unit));
        }
    } else {
        labels.extend(label(strings, key, value, unit));
    }
}

fn label(strings: &mut Interner, key: &str, value: &Value, unit: &str) -> Option<Label> {
    let text = match value {
        // Readers ignore a label without text, number and unit.
        Value::Int(0) if unit.is_empty() => Cow::Borrowed("0"),
        Value::Int(value) => return Some(number(strings, key, *value, unit)),
        Value::Empty => return None,
        Value::Str(text) => Cow::Borrowed(&**text),
        Value::Bool(flag) => Cow::Borrowed(if *flag { "true" } else { "false" }),
        Value::Double(value) => Cow::Owned(value.to_string()),
        Value::Bytes(bytes) => Cow::Owned(to_base64(bytes)),
        Value::Array(_) | Value::Map(_) => Cow::Owned(value_text(value)),
    };
    if text.is_empty() {
        return None;
    }
    Some(Label {
        key: strings.string(key),
        text: strings.string(&text),
        ..Label::default()
    })
}

fn number(strings: &mut Interner, key: &str, number: i64, unit: &str) -> Label {
    Label {
        key: strings.string(key),
        number,
        unit: strings.string(unit),
        ..Label::default()
    }
}

pub(super) fn push_link(labels: &mut Vec<Label>, strings: &mut Interner, link: &Link) {
    let ids: [(&str, &[u8]); 2] = [("trace_id", &link.trace_id), ("span_id", &link.span_id)];
    for (key, id) in ids {
        if id.iter().all(|&byte| byte == 0) {
            continue;
        }
        let mut hex = Vec::with_capacity(2 * id.len());
        push_hex(&mut hex, id);
        let hex = String::from_utf8_lossy(&hex);
        labels.push(Label {
            key: strings.string(key),
            text: strings.string(&hex),
            ..Label::default()
        });
    }
}
