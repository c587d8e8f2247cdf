//! Which attributes become labels, and the label names.

use std::borrow::Cow;

use profcol_labels::{LabelSource, attribute_of, label_sent_for};
pub use profcol_labels::{sanitized, text};
use profcol_profile::{Attributes, Value};

const COMM: &str = "comm";
const PROCESS_COMM: &str = "process.comm";
const EXECUTABLE_NAME: &str = "process.executable.name";
/// Labels that the profiled program chose, which Parca Agent sends by their own names.
const CONTEXT_LABEL: &str = "process.context.label.";
/// Beginnings of labels that such a label must not replace.
const RESERVED: [&str; 9] = [
    "__",
    "container_",
    "host_",
    "k8s_",
    "os_",
    "process_",
    "service_",
    "systemd_",
    "thread_",
];
/// Length of a task's name (`comm`) in the kernel.
const COMM_BYTES: usize = 15;

/// Which labels to send in addition to those that Parca Agent always sends.
/// If several places have the same label, the closest to the sample wins: sample, profile, scope, resource, external
/// labels.
#[derive(Clone, Debug, Default)]
pub struct LabelRules {
    /// Labels of all rows.
    pub external: Vec<(String, String)>,
    /// Attributes that do not become labels.
    pub left_out: Vec<Pattern>,
}

/// A name, or a name prefix that ends in `*`.
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
    /// The label name for a sample attribute; `None` if it does not become a label.
    pub fn sample_label<'a>(&self, key: &'a str) -> Option<Cow<'a, str>> {
        if let Some(name) = key.strip_prefix(CONTEXT_LABEL).map(sanitized)
            && !name.is_empty()
            && !is_reserved(&name)
        {
            return Some(name);
        }
        self.label(key, Some(LabelSource::Sample))
    }

    /// Labels of a resource.
    pub fn resource_labels(&self, attributes: &Attributes) -> Vec<(String, String)> {
        let mut labels: Vec<(String, String)> = Vec::with_capacity(attributes.len());
        let mut executable = None;
        let mut has_comm = false;
        for attribute in attributes {
            match attribute.key.as_ref() {
                EXECUTABLE_NAME => executable = attribute.value.as_str(),
                // Even if empty, which asks to omit the label.
                PROCESS_COMM => has_comm = true,
                _ => {}
            }
            if let Some(name) = self.label(&attribute.key, Some(LabelSource::Resource)) {
                push(&mut labels, &name, &attribute.value);
            }
        }
        if let Some(name) = executable
            && !has_comm
            && labels.iter().all(|(label, _)| label != COMM)
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

    fn label<'a>(&self, key: &'a str, source: Option<LabelSource>) -> Option<Cow<'a, str>> {
        if let Some(name) = source.and_then(|source| label_sent_for(key, source)) {
            return Some(Cow::Borrowed(name));
        }
        let is_left_out = self.left_out.iter().any(|pattern| pattern.matches(key));
        (!is_left_out && !key.is_empty()).then(|| sanitized(key))
    }
}

fn is_reserved(name: &str) -> bool {
    RESERVED.iter().any(|beginning| name.starts_with(beginning))
        || [LabelSource::Sample, LabelSource::Resource]
            .iter()
            .any(|&source| attribute_of(name, source).is_some())
}

fn push(labels: &mut Vec<(String, String)>, name: &str, value: &Value) {
    let is_duplicate = labels.iter().any(|(label, _)| label == name);
    if let (false, Some(text)) = (is_duplicate, text(value)) {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_of_programs_do_not_replace_others() {
        let rules = LabelRules {
            left_out: vec![Pattern::new("process.*")],
            ..LabelRules::default()
        };
        for (key, expected) in [
            ("process.context.label.tenant", Some("tenant")),
            ("process.context.label.http.route", Some("http_route")),
            ("process.context.label.node", None),
            ("process.context.label.k8s.pod.name", None),
            ("process.context.label.__name__", None),
            ("process.context.label.", None),
            ("thread.name", Some("thread_name")),
        ] {
            assert_eq!(rules.sample_label(key).as_deref(), expected, "{key}");
        }
        let all = LabelRules::default();
        let kept = all.sample_label("process.context.label.node");
        assert_eq!(kept.as_deref(), Some("process_context_label_node"));
    }
}
