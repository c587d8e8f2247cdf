//! From attributes to labels: which, and under which names.

use std::borrow::Cow;

use profcol_profile::{Attributes, Value, json};

/// Attributes of resources that have a name of their own in Parca's agent.
pub const RESOURCE_NAMES: [(&str, &str); 2] = [("host.name", "node"), ("process.comm", "comm")];

/// Attributes of samples that have one.
pub const SAMPLE_NAMES: [(&str, &str); 3] = [
    ("cpu.logical_number", "cpu"),
    ("thread.id", "thread_id"),
    ("thread.name", "thread_name"),
];

const COMM: &str = "comm";
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
        self.label(key, &SAMPLE_NAMES)
    }

    /// Labels of a resource.
    pub fn resource_labels(&self, attributes: &Attributes) -> Vec<(String, String)> {
        let mut labels: Vec<(String, String)> = Vec::with_capacity(attributes.len());
        let mut executable = None;
        for attribute in attributes {
            if attribute.key.as_ref() == EXECUTABLE_NAME {
                executable = attribute.value.as_str();
            }
            if let Some(name) = self.label(&attribute.key, &RESOURCE_NAMES) {
                push(&mut labels, &name, &attribute.value);
            }
        }
        if let Some(name) = executable
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
            if let Some(name) = self.label(&attribute.key, &[]) {
                push(&mut labels, &name, &attribute.value);
            }
        }
        labels
    }

    fn label<'a>(&self, key: &'a str, own: &[(&str, &'static str)]) -> Option<Cow<'a, str>> {
        if let Some((_, name)) = own.iter().find(|(attribute, _)| *attribute == key) {
            return Some(Cow::Borrowed(name));
        }
        let is_left_out = self.left_out.iter().any(|pattern| pattern.matches(key));
        (!is_left_out && !key.is_empty()).then(|| sanitized(key))
    }
}

/// A name with `_` for each character that Prometheus' names have not.
pub fn sanitized(name: &str) -> Cow<'_, str> {
    let fits = |c: char| c.is_ascii_alphanumeric() || c == '_';
    if name.chars().all(fits) {
        return Cow::Borrowed(name);
    }
    let sanitized = name.chars().map(|c| if fits(c) { c } else { '_' });
    Cow::Owned(sanitized.collect())
}

/// The text of a value; none where there is nothing to say.
pub fn text(value: &Value) -> Option<Cow<'_, str>> {
    let text = match value {
        Value::Empty => return None,
        Value::Str(text) => Cow::Borrowed(&**text),
        // As a command line is written.
        Value::Array(items) if items.iter().all(|item| item.as_str().is_some()) => {
            let items: Vec<&str> = items.iter().filter_map(Value::as_str).collect();
            Cow::Owned(items.join(" "))
        }
        Value::Int(number) => Cow::Owned(number.to_string()),
        Value::Bool(flag) => Cow::Borrowed(if *flag { "true" } else { "false" }),
        Value::Double(number) => Cow::Owned(number.to_string()),
        other => Cow::Owned(json::value_text(other)),
    };
    (!text.is_empty()).then_some(text)
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
