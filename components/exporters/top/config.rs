//! The options of `top`.

use profcol_config::{Config, Duration, Problems};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Prints the hottest functions and processes.
#[derive(Clone, Debug, Deserialize, JsonSchema, Serialize)]
#[serde(default)]
pub struct TopConfig {
    /// Interval between tables; empty tables are not printed.
    pub interval: Duration,
    /// Number of functions to show.
    pub functions: usize,
    /// Number of processes to show.
    pub processes: usize,
    /// Output stream.
    pub output: Output,
}

#[derive(Clone, Copy, Debug, Default, Deserialize, JsonSchema, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Output {
    #[default]
    Stdout,
    Stderr,
}

impl Default for TopConfig {
    fn default() -> Self {
        Self {
            interval: Duration::from_secs(10),
            functions: 10,
            processes: 5,
            output: Output::Stdout,
        }
    }
}

impl Config for TopConfig {
    fn validate(&self, problems: &mut Problems) {
        if std::time::Duration::from(self.interval).is_zero() {
            problems.add("interval", "must be longer than 0s");
        }
        if self.functions == 0 && self.processes == 0 {
            problems.add("", "shows nothing: set functions or processes above 0");
        }
    }
}
