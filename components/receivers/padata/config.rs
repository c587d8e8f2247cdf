//! The options of `padata`.

use profcol_config::{Config, Duration, Problems};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Reads profiles from Parca Agent's offline files.
#[derive(Clone, Debug, Deserialize, JsonSchema, Serialize)]
#[serde(default)]
pub struct PadataConfig {
    /// The folder with the files.
    pub storage_path: String,
    /// Go on with files that appear later; `false` reads what is there and ends.
    pub follow: bool,
    /// How often to look for new files.
    pub poll_interval: Duration,
    /// What becomes of a file when everything in it has been delivered: `delete`, `keep`, or `move`
    /// to `move_to`.
    pub after: After,
    /// A folder of the same file system, for `after: move`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub move_to: String,
    /// What to do when the exporters gave a batch up, or a destination refused one for ever: `retry`
    /// tries the first again, without end, and puts files with the second aside; `leave`, for
    /// `follow: false`, leaves such a file as it is and ends with an error, at once where the
    /// exporters gave up.
    pub when_undelivered: WhenUndelivered,
    /// How many batches may be on their way at once. After a crash as many come twice at most.
    pub max_in_flight: usize,
    /// Longer records are refused, in MiB; also the bound for what they decompress to.
    pub max_record_mib: u32,
}

#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum After {
    #[default]
    Delete,
    Keep,
    Move,
}

#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum WhenUndelivered {
    #[default]
    Retry,
    Leave,
}

impl Default for PadataConfig {
    fn default() -> Self {
        Self {
            storage_path: String::new(),
            follow: true,
            poll_interval: std::time::Duration::from_secs(10).into(),
            after: After::Delete,
            move_to: String::new(),
            when_undelivered: WhenUndelivered::Retry,
            max_in_flight: 8,
            max_record_mib: 256,
        }
    }
}

impl Config for PadataConfig {
    fn validate(&self, problems: &mut Problems) {
        if self.storage_path.is_empty() {
            problems.add("storage_path", "must be set to the folder with the files");
        }
        if self.poll_interval.is_zero() || self.poll_interval.is_negative() {
            problems.add("poll_interval", "must be positive");
        }
        if (self.after == After::Move) == self.move_to.is_empty() {
            problems.add("move_to", "must be set if and only if `after` is `move`");
        }
        if self.follow && self.when_undelivered == WhenUndelivered::Leave {
            problems.add("when_undelivered", "`leave` requires `follow: false`");
        }
        if self.max_in_flight == 0 {
            problems.add("max_in_flight", "must be positive");
        }
        if !(1..=2048).contains(&self.max_record_mib) {
            problems.add("max_record_mib", "must be between 1 and 2048");
        }
    }
}
