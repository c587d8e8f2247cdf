//! The options of a rule.

use profcol_config::Problems;
use regex::Regex;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A rule matches if all of its conditions do.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, Serialize)]
#[serde(default)]
pub struct RuleConfig {
    /// Conditions on the resource: the profiled process, container or host.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub resource_attributes: Vec<ConditionConfig>,
    /// Conditions on the profile.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub profile_attributes: Vec<ConditionConfig>,
    /// Conditions on the sample, such as its thread.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub sample_attributes: Vec<ConditionConfig>,
}

/// With neither `value` nor `regex`, the attribute must exist.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, Serialize)]
#[serde(default)]
pub struct ConditionConfig {
    /// The key of the attribute; without the attribute the condition fails.
    pub key: String,
    /// The value that it must have, of the same type: text, number, boolean, list or map.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value: Option<serde_json::Value>,
    /// An unanchored regular expression that its text must match. Numbers and booleans are compared as text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub regex: Option<String>,
}

/// Validates the rules of the option `list`.
pub(crate) fn check(list: &str, rules: &[RuleConfig], problems: &mut Problems) {
    for (position, rule) in rules.iter().enumerate() {
        problems.nested(&format!("{list}::{position}"), |problems| {
            rule.validate(problems)
        });
    }
}

impl RuleConfig {
    fn validate(&self, problems: &mut Problems) {
        let lists = [
            ("resource_attributes", &self.resource_attributes),
            ("profile_attributes", &self.profile_attributes),
            ("sample_attributes", &self.sample_attributes),
        ];
        if lists.iter().all(|(_, conditions)| conditions.is_empty()) {
            problems.add(
                "",
                "needs at least one of resource_attributes, profile_attributes and sample_attributes",
            );
        }
        for (list, conditions) in lists {
            for (position, condition) in conditions.iter().enumerate() {
                problems.nested(&format!("{list}::{position}"), |problems| {
                    condition.validate(problems)
                });
            }
        }
    }
}

impl ConditionConfig {
    fn validate(&self, problems: &mut Problems) {
        if self.key.is_empty() {
            problems.add("key", "must name an attribute");
        }
        if self.value.is_some() && self.regex.is_some() {
            problems.add("regex", "only one of value and regex can be given");
        }
        if let Some(Err(error)) = self.regex.as_deref().map(Regex::new) {
            problems.add("regex", format!("invalid regular expression: {error}"));
        }
    }
}
