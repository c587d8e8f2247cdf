//! The options of `file_storage`: the Collector's `directory`, `create_directory` and `fsync`, and limits.

use std::borrow::Cow;

use profcol_config::{Config, Duration, Problems};
use profcol_storage::{FsyncPolicy, StorageOptions, WhenFull};
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize};

/// Stores the sending queues of exporters, and positions of receivers, on disk.
#[derive(Clone, Debug, Deserialize, JsonSchema, Serialize)]
#[serde(default)]
#[schemars(extend("x-refused" = {
    "compaction": "files are removed once their batches are delivered; remove it",
    "recreate": "damaged batches are skipped and counted; remove it",
    "timeout": "profcol does not wait for the directory lock; remove it",
    "directory_permissions": "directories are created with mode 0750; remove it",
}))]
pub struct FileStorageConfig {
    /// Directory for queues and positions, exclusive to one process.
    pub directory: String,
    /// Create the directory if it is missing.
    pub create_directory: bool,
    /// When batches are made durable: `always` before they are accepted, `interval` within `fsync_interval`, `never`
    /// leaves it to the operating system. The Collector's `true` is `always`, its `false` is `never`.
    pub fsync: Fsync,
    /// With `fsync: interval`, the maximum time until a batch is synced.
    pub fsync_interval: Duration,
    /// Maximum size on disk of each exporter's queue.
    pub max_bytes: u64,
    /// What to do with a batch when the queue is full, by `max_bytes`, `queue_size` or the disk: `block` refuses it,
    /// or makes its sender wait with `block_on_overflow`; `drop_oldest` drops older batches; `drop_newest` drops it.
    pub when_full: WhenFull,
}

#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Fsync {
    Always,
    #[default]
    Interval,
    Never,
}

impl<'de> Deserialize<'de> for Fsync {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(rename_all = "snake_case", untagged)]
        enum Written {
            Collector(bool),
            FsyncOption(FsyncOption),
        }
        Ok(match Written::deserialize(deserializer)? {
            Written::Collector(true) | Written::FsyncOption(FsyncOption::Always) => Self::Always,
            Written::FsyncOption(FsyncOption::Interval) => Self::Interval,
            Written::Collector(false) | Written::FsyncOption(FsyncOption::Never) => Self::Never,
        })
    }
}

#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum FsyncOption {
    Always,
    Interval,
    Never,
}

impl JsonSchema for Fsync {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Fsync".into()
    }

    fn json_schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
        let own = FsyncOption::json_schema(generator);
        schemars::json_schema!({ "anyOf": [own, { "type": "boolean" }] })
    }
}

/// Must hold at least some batches.
const MIN_BYTES: u64 = 1 << 20;

impl Default for FileStorageConfig {
    fn default() -> Self {
        Self {
            directory: "/var/lib/profcol/storage".to_owned(),
            create_directory: true,
            fsync: Fsync::default(),
            fsync_interval: std::time::Duration::from_secs(1).into(),
            max_bytes: 1 << 30,
            when_full: WhenFull::Block,
        }
    }
}

impl Config for FileStorageConfig {
    fn validate(&self, problems: &mut Problems) {
        if self.directory.is_empty() {
            problems.add("directory", "must be set to the directory for the queues");
        }
        if self.fsync_interval.is_zero() || self.fsync_interval.is_negative() {
            problems.add("fsync_interval", "must be positive, or set `fsync: always`");
        }
        if self.max_bytes < MIN_BYTES {
            problems.add("max_bytes", format!("must be at least {MIN_BYTES}"));
        }
    }
}

impl FileStorageConfig {
    pub(super) fn options(&self) -> StorageOptions {
        StorageOptions {
            directory: self.directory.clone().into(),
            create_directory: self.create_directory,
            fsync: match self.fsync {
                Fsync::Always => FsyncPolicy::Always,
                Fsync::Interval => FsyncPolicy::Interval(self.fsync_interval.into()),
                Fsync::Never => FsyncPolicy::Never,
            },
            max_bytes: self.max_bytes,
            when_full: self.when_full,
        }
    }
}
