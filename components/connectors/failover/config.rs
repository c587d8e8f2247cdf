//! The options of `failover`.

use profcol_config::{Config, Duration, PipelineId, Problems};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Passes batches to the first pipelines that accept them, by priority.
#[derive(Clone, Debug, Deserialize, JsonSchema, Serialize)]
#[serde(default)]
#[schemars(extend("x-refused" = {
    "retry_gap": "a batch tries one failed level at most; remove it",
    "max_retries": "a failed level is retried every `retry_interval`, without limit; remove it",
    "sending_queue": "the connector holds no batches; set `sending_queue` of the exporters",
}))]
pub struct FailoverConfig {
    /// Levels of pipelines, the preferred one first. All pipelines of a level get each of its batches.
    pub priority_levels: Vec<Vec<PipelineId>>,
    /// How long to skip a level that refused a batch before trying it again.
    pub retry_interval: Duration,
}

impl FailoverConfig {
    /// The pipelines that it names, each with the path of the option.
    pub fn named_pipelines(&self) -> Vec<(String, PipelineId)> {
        let levels = self.priority_levels.iter().enumerate();
        let named = levels.flat_map(|(level, pipelines)| {
            let pipelines = pipelines.iter().enumerate();
            pipelines.map(move |(at, id)| (format!("priority_levels::{level}::{at}"), id.clone()))
        });
        named.collect()
    }
}

impl Config for FailoverConfig {
    fn validate(&self, problems: &mut Problems) {
        if self.priority_levels.is_empty() {
            problems.add("priority_levels", "must have at least one level");
        }
        for (level, pipelines) in self.priority_levels.iter().enumerate() {
            if pipelines.is_empty() {
                let path = format!("priority_levels::{level}");
                problems.add(&path, "must have at least one pipeline");
            }
        }
        if self.retry_interval.is_negative() || self.retry_interval.is_zero() {
            problems.add("retry_interval", "must be positive");
        }
    }
}

// === defaults ===

impl Default for FailoverConfig {
    fn default() -> Self {
        Self {
            priority_levels: Vec::new(),
            retry_interval: Duration::from_secs(600),
        }
    }
}
