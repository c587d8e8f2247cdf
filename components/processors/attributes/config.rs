//! The options of `attributes`.

use profcol_config::{Config, Problems};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::shared::actions::{self, Action};
use crate::shared::rules::{self, RuleConfig};

/// Changes attributes of samples, profiles or resources.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, Serialize)]
#[serde(default)]
pub struct AttributesConfig {
    /// Actions, applied in order; at least one.
    pub actions: Vec<Action>,
    /// The level whose attributes change.
    pub context: Context,
    /// At least one of these rules must match. Without rules, everything matches.
    pub include: Vec<RuleConfig>,
    /// None of these rules may match.
    pub exclude: Vec<RuleConfig>,
}

#[derive(Clone, Copy, Debug, Default, Deserialize, JsonSchema, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Context {
    /// Attributes of each sample, such as its thread.
    #[default]
    Sample,
    /// Attributes of each profile.
    Profile,
    /// Attributes of each resource: the profiled process, container or host.
    Resource,
}

impl Config for AttributesConfig {
    fn validate(&self, problems: &mut Problems) {
        actions::check("actions", &self.actions, problems);
        for (list, rules) in [("include", &self.include), ("exclude", &self.exclude)] {
            rules::check(list, rules, problems);
            for (position, rule) in rules.iter().enumerate() {
                if let Some(conditions) = self.context.cannot_know(rule) {
                    problems.add(
                        &format!("{list}::{position}::{conditions}"),
                        "matches below this context, where only some may match: change the context",
                    );
                }
            }
        }
    }
}

impl Context {
    /// The conditions of the rule that are below this level, and so may match only in part.
    fn cannot_know(self, rule: &RuleConfig) -> Option<&'static str> {
        let of_sample = !rule.sample_attributes.is_empty() && self != Self::Sample;
        let of_profile = !rule.profile_attributes.is_empty() && self == Self::Resource;
        of_sample
            .then_some("sample_attributes")
            .or(of_profile.then_some("profile_attributes"))
    }
}
