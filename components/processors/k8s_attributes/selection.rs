//! Selects the objects of a kind.

use profcol_kubernetes::Selection;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::records::Kind;
use super::rules::{OF_THE_CLUSTER, Rules};

#[derive(Clone, Debug, Default, Deserialize, JsonSchema, Serialize)]
#[serde(default)]
pub struct FilterConfig {
    /// Only pods of this node.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub node: String,
    /// Only pods of the node named by this environment variable.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub node_from_env_var: String,
    /// Only pods of this namespace.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    /// Only pods with these labels.
    pub labels: Vec<LabelFilter>,
    /// Only pods with these fields.
    pub fields: Vec<FieldFilter>,
}

#[derive(Clone, Debug, Default, Deserialize, JsonSchema, Serialize)]
#[serde(default)]
pub struct LabelFilter {
    /// The label.
    pub key: String,
    /// The value to compare with.
    pub value: String,
    /// The comparison.
    pub op: LabelOperator,
}

#[derive(Clone, Copy, Debug, Default, Deserialize, JsonSchema, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum LabelOperator {
    #[default]
    Equals,
    NotEquals,
    Exists,
    DoesNotExist,
}

#[derive(Clone, Debug, Default, Deserialize, JsonSchema, Serialize)]
#[serde(default)]
pub struct FieldFilter {
    /// The field, such as `status.phase`; the API server decides which are supported.
    pub key: String,
    /// The value to compare with.
    pub value: String,
    /// The comparison.
    pub op: FieldOperator,
}

#[derive(Clone, Copy, Debug, Default, Deserialize, JsonSchema, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum FieldOperator {
    #[default]
    Equals,
    NotEquals,
}

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
