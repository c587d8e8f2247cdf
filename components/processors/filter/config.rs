//! The options of `filter`.

use profcol_config::{Config, Problems};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::shared::rules::{self, RuleConfig};

/// Drops samples by the attributes of their resource, their profile and their own.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, Serialize)]
#[serde(default)]
pub struct FilterConfig {
    /// Rules of which one must match a sample for it to pass. Without any, all pass.
    pub include: Vec<RuleConfig>,
    /// Rules of which none may match.
    pub exclude: Vec<RuleConfig>,
}

impl Config for FilterConfig {
    fn validate(&self, problems: &mut Problems) {
        if self.include.is_empty() && self.exclude.is_empty() {
            problems.add("", "needs at least one rule in include or exclude");
        }
        rules::check("include", &self.include, problems);
        rules::check("exclude", &self.exclude, problems);
    }
}
