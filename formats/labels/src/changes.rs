//! The effect of rules on attributes.

use std::collections::HashSet;
use std::sync::Arc;

use profcol_profile::{Attributes, KeyValue, Value, attributes_size};

use crate::labels::Labels;
use crate::names::{LabelSource, attribute_of};
use crate::rows::{COMM, LabelRows, Origin};

/// Which labels only rules see, so that they are removed after the last rule.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Leftovers {
    /// Labels with a `__` prefix, as in Prometheus.
    #[default]
    Prometheus,
    /// Labels with a `__meta_` prefix, as in Parca Agent.
    Parca,
}

/// The effect of the rules on attributes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    set: Vec<KeyValue>,
    removed: Vec<Arc<str>>,
}

// === impl LabelRows ===

impl LabelRows {
    /// The difference between `labels` and the rows it was created from.
    pub fn changes(&self, labels: &Labels<'_>, leftovers: Leftovers) -> Changes {
        let mut changes = Changes::default();
        for label in labels.iter().filter(|label| label.is_set) {
            let row = label.row;
            let is_attribute = row.is_some_and(|row| row.origin != Origin::Presence);
            let is_same = row.is_some_and(|row| row.text == label.value);
            let is_left_over = leftovers.drops(label.name()) || label.name().is_empty();
            if is_same || !is_attribute && is_left_over {
                continue;
            }
            let own = attribute_of(label.name(), LabelSource::Resource).filter(|_| !is_attribute);
            let key = own.unwrap_or(label.name());
            changes.set.push(KeyValue::new(key, label.value));
        }
        let left: HashSet<&str> = labels.iter().map(|label| label.name()).collect();
        for row in self.iter() {
            let is_removed = !left.contains(row.name()) || leftovers.drops(row.name());
            match row.origin {
                // Keeps it from being derived again.
                _ if is_removed && row.name() == COMM => changes.set.push(KeyValue {
                    key: COMM.into(),
                    value: Value::Empty,
                }),
                Origin::Attribute if is_removed => changes.removed.push(row.name().into()),
                _ => {}
            }
        }
        changes
    }
}

// === impl Leftovers ===

impl Leftovers {
    fn drops(self, name: &str) -> bool {
        name.starts_with(match self {
            Leftovers::Prometheus => "__",
            Leftovers::Parca => "__meta_",
        })
    }
}

// === impl Changes ===

impl Changes {
    /// Returns whether anything changed.
    pub fn apply(&self, attributes: &mut Attributes) -> bool {
        if self.set.is_empty() && self.removed.is_empty() {
            return false;
        }
        attributes.retain(|attribute| !self.removed.contains(&attribute.key));
        for new in &self.set {
            match attributes.iter_mut().find(|it| it.key == new.key) {
                Some(attribute) => attribute.value = new.value.clone(),
                None => attributes.push(new.clone()),
            }
        }
        true
    }

    /// Approximate memory use.
    pub fn heap_size(&self) -> usize {
        let removed = self.removed.iter().map(|it| it.len() + size_of_val(it));
        attributes_size(&self.set) + removed.sum::<usize>()
    }
}
