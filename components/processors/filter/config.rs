//! The options of `filter`.

use profcol_config::{Config, Problems};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::shared::rules::{self, RuleConfig};

/// For the Collector's `filter`, whose conditions are OTTL.
const INSTEAD: &str = "conditions are lists of attributes here, not OTTL: write \
     `exclude: [{resource_attributes: [{key: service.name, value: shop}]}]` to drop what matches, `include` to keep only that";
const LOGS: &str =
    "profcol supports only profiles; remove it, and filter logs with a Collector alongside profcol";
const METRICS: &str = "profcol supports only profiles; remove it, and filter metrics with a Collector alongside profcol";
const TRACES: &str = "profcol supports only profiles; remove it, and filter traces with a Collector alongside profcol";

/// Drops samples by the attributes of their resource, their profile and their own.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, Serialize)]
#[serde(default)]
#[schemars(extend("x-refused" = {
    "error_mode": "conditions are lists of attributes here, not OTTL, and cannot fail; remove it",
    "logs": LOGS,
    "metrics": METRICS,
    "profile_conditions": INSTEAD,
    "profiles": INSTEAD,
    "spans": TRACES,
    "trace_conditions": TRACES,
    "traces": TRACES,
    "log_conditions": LOGS,
    "metric_conditions": METRICS,
}))]
pub struct FilterConfig {
    /// A sample passes if at least one of these rules matches. Without rules, all pass.
    pub include: Vec<RuleConfig>,
    /// None of these rules may match.
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
