//! The options of `pprof_file`.

use std::collections::BTreeSet;

use profcol_config::{Config, Duration, Present, Problems};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::name::Template;
use crate::shared::pprof_labels::Labels;

/// Aggregates profiles and writes them to pprof files.
#[derive(Clone, Debug, Deserialize, JsonSchema, Serialize)]
#[serde(default)]
pub struct PprofFileConfig {
    /// Output directory; created if missing. Must not be shared with another exporter.
    pub directory: String,
    /// Aggregation interval: a file is written this long after its first profile arrived. `0s`
    /// writes each batch before acknowledging it.
    pub interval: Duration,
    /// Resource attributes; resources with different values are written to different files.
    pub group_by: Vec<String>,
    /// Maximum number of groups in memory; further ones share files named `other`.
    pub max_groups: usize,
    /// Template of file names, with the placeholders `{type}`, `{group}`, `{time}` and `{sequence}` (required).
    pub file_name: String,
    /// Attributes written as labels of samples.
    pub labels: Labels,
    /// Maximum memory for buffered profiles; beyond it files are written early, and batches refused
    /// if that fails.
    pub max_buffered_mib: usize,
    /// Removal of old files; all are kept if absent.
    pub retention: Present<Retention>,
}

/// Removal of old files, oldest first; the newest file is always kept.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, Serialize)]
#[serde(default)]
pub struct Retention {
    /// Maximum number of files; 0 means no limit.
    pub max_files: usize,
    /// Maximum age of files; `0s` means no limit.
    pub max_age: Duration,
    /// Maximum total size of all files; 0 means no limit.
    pub max_total_mib: u64,
}

pub(super) const DEFAULT_FILE_NAME: &str = "{type}-{group}-{time}-{sequence}.pb.gz";
/// Maximum size of a file that can be built in memory.
const MAX_BUFFERED_MIB: usize = 1024;

// === defaults ===

impl Default for PprofFileConfig {
    fn default() -> Self {
        Self {
            directory: String::new(),
            interval: Duration::from_secs(10),
            group_by: Vec::new(),
            max_groups: 1000,
            file_name: DEFAULT_FILE_NAME.to_owned(),
            labels: Labels::default(),
            max_buffered_mib: 64,
            retention: Present::default(),
        }
    }
}

// === validation ===

impl Config for PprofFileConfig {
    fn validate(&self, problems: &mut Problems) {
        if self.directory.is_empty() {
            problems.add("directory", "directory must be non-empty");
        }
        if self.interval.is_negative() {
            problems.add("interval", "interval must not be negative");
        }
        if self.group_by.iter().any(String::is_empty) {
            problems.add("group_by", "a key of group_by must be non-empty");
        }
        let different: BTreeSet<&String> = self.group_by.iter().collect();
        if different.len() < self.group_by.len() {
            problems.add("group_by", "group_by contains a key twice");
        }
        if self.max_groups == 0 {
            problems.add("max_groups", "max_groups must be positive");
        }
        if let Err(error) = Template::parse(&self.file_name) {
            problems.add("file_name", error.to_string());
        }
        if !(1..=MAX_BUFFERED_MIB).contains(&self.max_buffered_mib) {
            let message = format!("max_buffered_mib must be between 1 and {MAX_BUFFERED_MIB}");
            problems.add("max_buffered_mib", message);
        }
        if let Some(retention) = &*self.retention
            && retention.max_age.is_negative()
        {
            problems.add("retention::max_age", "max_age must not be negative");
        }
    }
}
