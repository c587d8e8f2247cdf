//! The options of `padata`.

use profcol_config::{Config, Duration, Problems};
use profcol_parca::LabelRules;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::shared::parca::LabelSettings;

/// Records profiles in Parca Agent's offline files.
#[derive(Clone, Debug, Deserialize, JsonSchema, Serialize)]
#[serde(default)]
pub struct PadataConfig {
    /// Directory for the files; created if missing.
    pub storage_path: String,
    /// Interval after which a file is rotated and compressed.
    pub rotation_interval: Duration,
    /// zstd compression level, 1 to 19.
    pub compression_level: i32,
    /// Maximum size of a file before it is rotated, in bytes.
    pub max_file_bytes: u64,
    /// Maximum total size of all files, in bytes.
    pub max_total_bytes: u64,
    /// What to do when the limit is reached: `drop_oldest`, or `stop` recording until space is freed.
    pub when_full: WhenFull,
    /// Record schema: `v1`, which Parca Agent can upload, or `v2`, which it cannot.
    pub schema: Schema,
    #[serde(flatten)]
    pub labels: LabelSettings,
}

#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum WhenFull {
    #[default]
    DropOldest,
    Stop,
}

#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Schema {
    #[default]
    V1,
    V2,
}

impl Default for PadataConfig {
    fn default() -> Self {
        Self {
            storage_path: String::new(),
            rotation_interval: std::time::Duration::from_secs(600).into(),
            compression_level: 3,
            max_file_bytes: 64 << 20,
            max_total_bytes: 1 << 30,
            when_full: WhenFull::DropOldest,
            schema: Schema::V1,
            labels: LabelSettings::default(),
        }
    }
}

impl Config for PadataConfig {
    fn validate(&self, problems: &mut Problems) {
        if self.storage_path.is_empty() {
            problems.add("storage_path", "must be set to the directory for the files");
        }
        if self.rotation_interval.is_zero() || self.rotation_interval.is_negative() {
            problems.add("rotation_interval", "must be positive");
        }
        if !(1..=19).contains(&self.compression_level) {
            problems.add("compression_level", "must be between 1 and 19");
        }
        if self.max_file_bytes == 0 || self.max_file_bytes > self.max_total_bytes {
            problems.add(
                "max_file_bytes",
                "must be positive and at most `max_total_bytes`",
            );
        }
        self.labels.validate(problems);
    }
}

impl PadataConfig {
    pub fn label_rules(&self) -> LabelRules {
        self.labels.rules()
    }
}
