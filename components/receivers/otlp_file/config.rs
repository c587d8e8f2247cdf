//! The options of `otlp_file`; those that the Collector's `otlpjsonfile` has too are the same.

use glob::Pattern;
use profcol_config::{Config, Duration, Problems};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Reads profiles back from files.
#[derive(Clone, Debug, Deserialize, JsonSchema, Serialize)]
#[serde(default)]
pub struct OtlpFileConfig {
    /// Which files to read: paths in which `*`, `?`, `[...]` and `**` stand for any text.
    pub include: Vec<String>,
    /// Which of those not to read.
    pub exclude: Vec<String>,
    /// Where to begin in files that are there at start: at the `beginning`, or at the `end` to read
    /// only what is added. Files that appear later are read from the beginning.
    pub start_at: StartAt,
    /// Go on with what is added to the files and with new files; `false` reads what is there
    /// once and ends.
    pub follow: bool,
    /// How often to look for something new.
    pub poll_interval: Duration,
    /// What the records hold: `auto` finds out, `json` or `proto` take nothing else.
    pub format: Format,
    /// Longer records are skipped, in bytes; also the bound for what they decompress to.
    pub max_record_size: usize,
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
            follow: true,
            poll_interval: Duration::from_millis(200),
            format: Format::default(),
            max_record_size: 64 << 20,
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
    }
}
