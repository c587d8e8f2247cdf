//! The options of `memory_limiter`: the Collector's.

use profcol_config::{Config, Duration, Problems};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Refuses batches while this process uses too much memory.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, Serialize)]
#[serde(default)]
#[schemars(extend("x-refused" = {
    "max_gc_interval_when_hard_limited": "there is no garbage collector to run; remove it",
    "max_gc_interval_when_soft_limited": "there is no garbage collector to run; remove it",
    "min_gc_interval_when_hard_limited": "there is no garbage collector to run; remove it",
    "min_gc_interval_when_soft_limited": "there is no garbage collector to run; remove it",
}))]
pub struct MemoryLimiterConfig {
    /// Maximum age of a memory reading; `1s` is a good value.
    pub check_interval: Duration,
    /// The hard limit in MiB.
    pub limit_mib: u32,
    /// How far below the hard limit the soft limit is; by default a fifth of the limit. Batches are refused above it.
    pub spike_limit_mib: u32,
    /// The hard limit as a percentage of the available memory: the cgroup's limit, else the host's
    /// memory. Used if `limit_mib` is not set.
    pub limit_percentage: u32,
    /// `spike_limit_mib` as a percentage of the same.
    pub spike_limit_percentage: u32,
}

impl Config for MemoryLimiterConfig {
    fn validate(&self, problems: &mut Problems) {
        if self.check_interval.is_zero() || self.check_interval.is_negative() {
            problems.add(
                "check_interval",
                "'check_interval' must be greater than zero",
            );
        }
        if self.limit_mib == 0 && self.limit_percentage == 0 {
            problems.add(
                "limit_mib",
                "'limit_mib' or 'limit_percentage' must be greater than zero",
            );
        }
        if self.limit_percentage > 100 {
            problems.add(
                "limit_percentage",
                "'limit_percentage' must be greater than zero and less than or equal to hundred",
            );
        }
        if self.spike_limit_percentage > 100 {
            problems.add(
                "spike_limit_percentage",
                "'spike_limit_percentage' must be greater than zero and less than or equal to hundred",
            );
        }
        if self.limit_mib > 0 && self.limit_mib <= self.spike_limit_mib {
            problems.add(
                "spike_limit_mib",
                "'spike_limit_mib' must be smaller than 'limit_mib'",
            );
        }
        if self.limit_mib == 0
            && self.limit_percentage > 0
            && self.limit_percentage <= self.spike_limit_percentage
        {
            problems.add(
                "spike_limit_percentage",
                "'spike_limit_percentage' must be smaller than 'limit_percentage'",
            );
        }
    }
}
