//! The options of `batch`: the Collector's.

use profcol_config::{Config, Duration, Problems};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Merges small batches and splits large ones.
#[derive(Clone, Debug, Deserialize, JsonSchema, Serialize)]
#[serde(default)]
pub struct BatchConfig {
    /// Maximum time before a batch is sent; `0s` sends immediately.
    pub timeout: Duration,
    /// Send as soon as the batch has this many samples; 0 sends on `timeout` only.
    pub send_batch_size: u32,
    /// Maximum samples per batch; 0 means no limit.
    pub send_batch_max_size: u32,
    /// Maximum encoded bytes per batch; 0 means no limit.
    pub send_batch_max_bytes: u32,
    /// Batches of clients whose values of these metadata keys differ are never merged. The receiver
    /// needs `include_metadata: true`.
    pub metadata_keys: Vec<String>,
    /// Maximum number of distinct value combinations; 0 means no limit.
    pub metadata_cardinality_limit: u32,
}

impl Default for BatchConfig {
    fn default() -> Self {
        Self {
            timeout: Duration::from_millis(200),
            send_batch_size: 8192,
            send_batch_max_size: 0,
            send_batch_max_bytes: 0,
            metadata_keys: Vec::new(),
            metadata_cardinality_limit: 1000,
        }
    }
}

impl Config for BatchConfig {
    fn validate(&self, problems: &mut Problems) {
        if self.timeout.is_negative() {
            problems.add("timeout", "timeout must be greater or equal to 0");
        }
        if self.send_batch_max_size > 0 && self.send_batch_max_size < self.send_batch_size {
            problems.add(
                "send_batch_max_size",
                "send_batch_max_size must be greater or equal to send_batch_size",
            );
        }
        for (position, key) in self.metadata_keys.iter().enumerate() {
            let same = |other: &String| other.eq_ignore_ascii_case(key);
            if self.metadata_keys[..position].iter().any(same) {
                let message = format!("duplicate entry in metadata_keys: {key:?}");
                problems.add("metadata_keys", message);
            }
        }
    }
}
