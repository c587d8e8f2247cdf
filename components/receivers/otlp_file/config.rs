//! The options of `otlp_file`; options of the Collector's `otlpjsonfile` are the same.

use glob::Pattern;
use profcol_config::{ComponentId, Config, Duration, Problems};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::shared::WhenUndelivered;

/// Reads profiles from files.
#[derive(Clone, Debug, Deserialize, JsonSchema, Serialize)]
#[serde(default)]
pub struct OtlpFileConfig {
    /// The files to read: glob patterns with `*`, `?`, `[...]` and `**`.
    pub include: Vec<String>,
    /// Glob patterns of files to exclude.
    pub exclude: Vec<String>,
    /// Where to start in files that exist at startup: at the `beginning`, or at the `end` to read only what is
    /// appended. Files created later are read from the beginning. Ignored if positions of an earlier run are stored.
    pub start_at: StartAt,
    /// Extension that stores the positions in files, so that the next run continues there.
    pub storage: Option<ComponentId>,
    /// Continue with appended records and new files; `false` reads the existing files once and ends.
    pub follow: bool,
    /// How often to check for new files and records.
    pub poll_interval: Duration,
    /// The encoding of the records: `auto` detects it, `json` and `proto` accept only that.
    pub format: Format,
    /// The maximum size of a record, in bytes, compressed or not. Larger ones are skipped.
    pub max_record_size: usize,
    /// The maximum number of records in flight. After a crash, about as many are delivered twice.
    pub max_in_flight: u16,
    /// What to do if exporters gave up on a record: `retry` pushes it again, without limit; `leave`, for
    /// `follow: false`, ends with an error.
    pub when_undelivered: WhenUndelivered,
}

#[derive(Clone, Copy, Debug, Default, Deserialize, JsonSchema, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
#[schemars(extend("x-unknown" = "invalid start_at location"))]
pub enum StartAt {
    Beginning,
    #[default]
    End,
}

#[derive(Clone, Copy, Debug, Default, Deserialize, JsonSchema, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Format {
    #[default]
    Auto,
    Json,
    Proto,
}

impl Default for OtlpFileConfig {
    fn default() -> Self {
        Self {
            include: Vec::new(),
            exclude: Vec::new(),
            start_at: StartAt::default(),
            storage: None,
            follow: true,
            poll_interval: Duration::from_millis(200),
            format: Format::default(),
            max_record_size: 64 << 20,
            max_in_flight: 100,
            when_undelivered: WhenUndelivered::default(),
        }
    }
}

impl Config for OtlpFileConfig {
    fn validate(&self, problems: &mut Problems) {
        if self.include.is_empty() {
            problems.add("include", "required argument `include` is empty");
        }
        for (key, globs) in [("include", &self.include), ("exclude", &self.exclude)] {
            for glob in globs {
                if let Err(error) = Pattern::new(glob) {
                    problems.add(key, format!("parse {key} glob {glob:?}: {error}"));
                }
            }
        }
        if self.poll_interval.is_zero() || self.poll_interval.is_negative() {
            problems.add("poll_interval", "`poll_interval` must be positive");
        }
        if !self.follow && self.start_at == StartAt::End {
            problems.add(
                "start_at",
                "with `follow: false` nothing would be read: set `start_at: beginning`",
            );
        }
        if self.max_record_size == 0 || u32::try_from(self.max_record_size).is_err() {
            problems.add("max_record_size", "must be between 1 and 4294967295");
        }
        if self.max_in_flight == 0 {
            problems.add("max_in_flight", "must be positive");
        }
        self.when_undelivered.validate(self.follow, problems);
    }
}
