//! The option `filter`: which pods to watch.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

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
