//! Selects the objects of a kind.

use profcol_kubernetes::Selection;

use super::pod_filter::{FieldOperator, FilterConfig, LabelOperator};
use super::records::Kind;
use super::rules::{OF_THE_CLUSTER, Rules};

impl FilterConfig {
    /// The objects of a kind. `node` restricts pods to those of one node; empty means all.
    pub(super) fn selection(&self, kind: Kind, node: &str, rules: &Rules) -> Selection {
        let mut selection = Selection::default();
        if kind.resource().is_namespaced {
            selection.namespace.clone_from(&self.namespace);
        }
        match kind {
            Kind::Pod => {
                if !node.is_empty() {
                    selection.fields.push(format!("spec.nodeName={node}"));
                }
                let fields = self.fields.iter().map(|it| {
                    let operator = match it.op {
                        FieldOperator::Equals => "=",
                        FieldOperator::NotEquals => "!=",
                    };
                    format!("{}{operator}{}", it.key, it.value)
                });
                selection.fields.extend(fields);
                selection.labels = self
                    .labels
                    .iter()
                    .map(|it| match it.op {
                        LabelOperator::Equals => format!("{}={}", it.key, it.value),
                        LabelOperator::NotEquals => format!("{}!={}", it.key, it.value),
                        LabelOperator::Exists => it.key.clone(),
                        LabelOperator::DoesNotExist => format!("!{}", it.key),
                    })
                    .collect();
            }
            Kind::Node if !node.is_empty() => {
                selection.fields.push(format!("metadata.name={node}"));
            }
            Kind::Namespace if rules.needs_only_the_cluster() => {
                selection
                    .fields
                    .push(format!("metadata.name={OF_THE_CLUSTER}"));
            }
            _ => {}
        }
        selection
    }
}
