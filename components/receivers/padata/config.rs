//! The options of `padata`.

use profcol_config::{Config, Duration, Problems};
use profcol_padata::DEFAULT_MAX_RECORD_MIB;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::shared::WhenUndelivered;

/// Reads profiles from Parca Agent's offline files.
#[derive(Clone, Debug, Deserialize, JsonSchema, Serialize)]
#[serde(default)]
pub struct PadataConfig {
    /// The directory with the files.
    pub storage_path: String,
    /// Continue with new files; `false` reads the existing files and ends.
    pub follow: bool,
    /// How often to look for new files.
    pub poll_interval: Duration,
    /// What to do with a fully delivered file: `delete`, `keep`, or `move` it to `move_to`.
    pub after: AfterDelivery,
    /// A directory on the same file system, for `after: move`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub move_to: String,
    /// What to do if exporters gave up on a batch, or a destination permanently refused one: `retry` retries the
    /// former without limit, and sets files with the latter aside; `leave`, for `follow: false`, leaves the file
    /// unchanged and ends with an error, immediately if exporters gave up.
    pub when_undelivered: WhenUndelivered,
    /// The maximum number of batches in flight. After a crash, at most as many are delivered twice.
    pub max_in_flight: usize,
    /// The maximum size of a record, in MiB, compressed or not. Larger ones are refused.
    pub max_record_mib: u32,
}

#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum AfterDelivery {
    #[default]
    Delete,
    Keep,
    Move,
}

impl Default for PadataConfig {
    fn default() -> Self {
        Self {
            storage_path: String::new(),
            follow: true,
            poll_interval: std::time::Duration::from_secs(10).into(),
            after: AfterDelivery::Delete,
            move_to: String::new(),
            when_undelivered: WhenUndelivered::Retry,
            max_in_flight: 8,
            max_record_mib: DEFAULT_MAX_RECORD_MIB,
        }
    }
}

impl Config for PadataConfig {
    fn validate(&self, problems: &mut Problems) {
        if self.storage_path.is_empty() {
            problems.add(
                "storage_path",
                "must be set to the directory with the files",
            );
        }
        if self.poll_interval.is_zero() || self.poll_interval.is_negative() {
            problems.add("poll_interval", "must be positive");
        }
        if (self.after == AfterDelivery::Move) == self.move_to.is_empty() {
            problems.add("move_to", "must be set if and only if `after` is `move`");
        }
        self.when_undelivered.validate(self.follow, problems);
        if self.max_in_flight == 0 {
            problems.add("max_in_flight", "must be positive");
        }
        if !(1..=2048).contains(&self.max_record_mib) {
            problems.add("max_record_mib", "must be between 1 and 2048");
        }
    }
}
