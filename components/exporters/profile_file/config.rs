//! The options of `profile_file`.

use std::path::Path;

use profcol_config::{Config, Problems};
use profcol_files::{Format, UnknownFormat};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::shared::pprof_labels::Labels;

/// Aggregates all profiles and writes them to one file when it stops.
#[derive(Clone, Debug, Deserialize, JsonSchema, Serialize)]
#[serde(default)]
pub struct ProfileFileConfig {
    /// The output file; its extension selects the format: `.pb.gz`, `.pprof`, `.otlp`, `.otlp.json`, `.folded`, `.svg`,
    /// `.html`, `.speedscope.json`, `.firefox.json` or `.firefox.json.gz`. An existing file is replaced. `-` writes
    /// `.pb.gz` to standard output.
    pub path: String,
    /// Title of pictures and pages.
    pub title: String,
    /// Attributes kept as labels of samples; more labels mean more distinct samples.
    pub labels: Labels,
    /// Maximum memory for the profile; beyond it samples are dropped and counted.
    pub max_memory_mib: usize,
}

/// Maximum size of a profile that can be built in memory.
const MAX_MEMORY_MIB: usize = 1024;

impl Default for ProfileFileConfig {
    fn default() -> Self {
        Self {
            path: String::new(),
            title: "Profile".to_owned(),
            labels: Labels::default(),
            max_memory_mib: 512,
        }
    }
}

impl ProfileFileConfig {
    /// The output file; `None` for standard output.
    pub(super) fn file(&self) -> Option<&Path> {
        (self.path != "-").then(|| Path::new(&self.path))
    }

    pub(super) fn format(&self) -> Result<Format, UnknownFormat> {
        match self.file() {
            Some(_) => Format::of_file(&self.path),
            None => Ok(Format::Pprof),
        }
    }
}

impl Config for ProfileFileConfig {
    fn validate(&self, problems: &mut Problems) {
        if self.path.is_empty() {
            problems.add("path", "must not be empty");
        } else if let Err(error) = self.format() {
            problems.add("path", error.to_string());
        }
        if !(1..=MAX_MEMORY_MIB).contains(&self.max_memory_mib) {
            let message = format!("must be between 1 and {MAX_MEMORY_MIB}");
            problems.add("max_memory_mib", message);
        }
    }
}
