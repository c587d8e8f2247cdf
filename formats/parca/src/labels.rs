//! From attributes to labels: which, and under which names.

use std::borrow::Cow;

use profcol_labels::{Place, label_sent_for};
pub use profcol_labels::{sanitized, text};
use profcol_profile::{Attributes, Value};

const COMM: &str = "comm";
const PROCESS_COMM: &str = "process.comm";
const EXECUTABLE_NAME: &str = "process.executable.name";
/// Bytes of a task's name in the kernel.
const COMM_BYTES: usize = 15;

/// What becomes a label beside what Parca's agent always sends.
///
/// Where one name comes from several places, the closest to the sample wins: the sample, the
/// profile, the scope, the resource, and last the external labels.
#[derive(Clone, Debug, Default)]
pub struct LabelRules {
    /// Labels for all rows.
    pub external: Vec<(String, String)>,
    /// Attributes that do not become labels.
    pub left_out: Vec<Pattern>,
}

/// A name, or the beginning of names where it ends in `*`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pattern(String);

impl Pattern {
    pub fn new(pattern: &str) -> Self {
        Self(pattern.to_owned())
    }

    pub fn matches(&self, name: &str) -> bool {
        match self.0.strip_suffix('*') {
            Some(beginning) => name.starts_with(beginning),
            None => name == self.0,
        }
    }
}

impl LabelRules {
    /// The name of the label for an attribute of a sample; none where it does not become one.
    pub fn sample_label<'a>(&self, key: &'a str) -> Option<Cow<'a, str>> {
        self.label(key, Some(Place::Sample))
    }

    /// Labels of a resource.
    pub fn resource_labels(&self, attributes: &Attributes) -> Vec<(String, String)> {
        let mut labels: Vec<(String, String)> = Vec::with_capacity(attributes.len());
        let mut executable = None;
        let mut has_comm = false;
        for attribute in attributes {
            match attribute.key.as_ref() {
                EXECUTABLE_NAME => executable = attribute.value.as_str(),
                // Also an empty one, which says that there is to be no such label.
                PROCESS_COMM => has_comm = true,
                _ => {}
            }
            if let Some(name) = self.label(&attribute.key, Some(Place::Resource)) {
                push(&mut labels, &name, &attribute.value);
            }
        }
        if let Some(name) = executable
            && !has_comm
            && labels.iter().all(|(known, _)| known != COMM)
        {
            labels.push((COMM.into(), start_of(name, COMM_BYTES).into()));
        }
        labels
    }

    /// Labels of a scope.
    pub fn scope_labels(&self, attributes: &Attributes) -> Vec<(String, String)> {
        let mut labels = Vec::new();
        for attribute in attributes {
            if let Some(name) = self.label(&attribute.key, None) {
                push(&mut labels, &name, &attribute.value);
            }
        }
        labels
    }

    fn label<'a>(&self, key: &'a str, place: Option<Place>) -> Option<Cow<'a, str>> {
        if let Some(name) = place.and_then(|place| label_sent_for(key, place)) {
            return Some(Cow::Borrowed(name));
        }
        let is_left_out = self.left_out.iter().any(|pattern| pattern.matches(key));
        (!is_left_out && !key.is_empty()).then(|| sanitized(key))
    }
}

fn push(labels: &mut Vec<(String, String)>, name: &str, value: &Value) {
    let is_known = labels.iter().any(|(known, _)| known == name);
    if let (false, Some(text)) = (is_known, text(value)) {
        labels.push((name.to_owned(), text.into_owned()));
    }
}

fn start_of(text: &str, bytes: usize) -> &str {
    let mut end = bytes.min(text.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text.get(..end).unwrap_or_default()
}
