//! The options of a rule.

use profcol_config::Problems;
use regex::Regex;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A rule matches when all of its conditions do.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, Serialize)]
#[serde(default)]
pub struct RuleConfig {
    /// Conditions on the resource: the process, container or host that was profiled.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub resource_attributes: Vec<ConditionConfig>,
    /// Conditions on the profile.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub profile_attributes: Vec<ConditionConfig>,
    /// Conditions on the sample: its thread, say.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub sample_attributes: Vec<ConditionConfig>,
}

/// With neither `value` nor `regex`, the attribute has to be there, whatever it says.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, Serialize)]
#[serde(default)]
pub struct ConditionConfig {
    /// The attribute; where it is missing, the condition does not hold.
    pub key: String,
    /// What it has to be: text, number, truth value, list or map, and of the same type.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value: Option<serde_json::Value>,
    /// A regular expression that has to be found in its text. Numbers and truth values count as they are written.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub regex: Option<String>,
}

/// Says what is wrong with the rules of the option `list`.
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
            problems.add("regex", format!("is no regular expression: {error}"));
        }
    }
}
