//! The options of `probabilistic_sampler`.

use profcol_config::{Config, Duration, Problems};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Passes on only some processes, or only some of the time.
#[derive(Clone, Debug, Deserialize, JsonSchema, Serialize)]
#[serde(default)]
pub struct ProbabilisticSamplerConfig {
    /// The percentage that passes.
    pub sampling_percentage: f64,
    /// The unit of the sampling decision.
    pub by: SamplingUnit,
    /// Interval between sampling decisions; `0s` decides once.
    pub interval: Duration,
    /// Instances with the same seed make the same decisions. Without one, each start uses a random seed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hash_seed: Option<u32>,
}

#[derive(Clone, Copy, Debug, Default, Deserialize, JsonSchema, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum SamplingUnit {
    /// Each process by itself; other resources by all of their attributes.
    #[default]
    Process,
    /// All processes of a host together, like Parca Agent's probabilistic profiling.
    Host,
}

impl Default for ProbabilisticSamplerConfig {
    fn default() -> Self {
        Self {
            sampling_percentage: 100.0,
            by: SamplingUnit::Process,
            interval: Duration::from_secs(60),
            hash_seed: None,
        }
    }
}

impl Config for ProbabilisticSamplerConfig {
    fn validate(&self, problems: &mut Problems) {
        if !(0.0..=100.0).contains(&self.sampling_percentage) {
            problems.add("sampling_percentage", "must be between 0 and 100");
        }
    }
}
