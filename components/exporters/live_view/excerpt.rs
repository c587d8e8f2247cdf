//! Attributes and texts as JSON of bounded size.

use profcol_profile::{KeyValue, Value};
use serde_json::{Map, Value as Json};

/// Longer texts are truncated.
const MAX_TEXT: usize = 1024;
/// More attributes of one resource or sample are left out.
pub(super) const MAX_ATTRIBUTES: usize = 128;
/// Nested attribute values.
const MAX_DEPTH: usize = 4;
/// Bytes of a profile, sample or value without its texts.
pub(super) const OVERHEAD: usize = 16;

/// Text for one response; the rest is left out.
pub(super) struct Excerpt {
    budget: usize,
}

impl Excerpt {
    pub fn new(max_bytes: usize) -> Self {
        Self { budget: max_bytes }
    }

    pub fn is_full(&self) -> bool {
        self.budget == 0
    }

    pub fn attributes(&mut self, attributes: &[KeyValue]) -> Map<String, Json> {
        self.entries(attributes, MAX_DEPTH)
    }

    /// An attribute's value.
    pub fn attribute(&mut self, value: &Value) -> Json {
        self.value(value, MAX_DEPTH)
    }

    fn value(&mut self, value: &Value, depth: usize) -> Json {
        self.charge(OVERHEAD);
        match value {
            Value::Empty => Json::Null,
            Value::Str(text) => self.text(text).into(),
            Value::Bool(flag) => (*flag).into(),
            Value::Int(number) => (*number).into(),
            Value::Double(number) => (*number).into(),
            Value::Bytes(bytes) => format!("[{} bytes]", bytes.len()).into(),
            Value::Array(_) | Value::Map(_) if depth == 0 => "[…]".into(),
            Value::Array(items) => {
                let mut shown = Vec::new();
                for item in items.iter().take(MAX_ATTRIBUTES) {
                    if !self.is_full() {
                        shown.push(self.value(item, depth - 1));
                    }
                }
                Json::Array(shown)
            }
            Value::Map(entries) => Json::Object(self.entries(entries, depth - 1)),
        }
    }

    fn entries(&mut self, entries: &[KeyValue], depth: usize) -> Map<String, Json> {
        let mut shown = Map::new();
        for entry in entries.iter().take(MAX_ATTRIBUTES) {
            if !self.is_full() {
                let name = self.text(&entry.key);
                shown.insert(name, self.value(&entry.value, depth));
            }
        }
        shown
    }

    pub fn charge(&mut self, bytes: usize) {
        self.budget = self.budget.saturating_sub(bytes);
    }

    pub fn text(&mut self, text: &str) -> String {
        let limit = MAX_TEXT.min(self.budget);
        let kept = &text[..text.floor_char_boundary(limit)];
        self.charge(kept.len().max(1));
        match kept.len() < text.len() {
            true => format!("{kept}…"),
            false => kept.to_owned(),
        }
    }
}
