//! `service::telemetry`: what profcol says about itself.

use std::collections::BTreeMap;

use profcol_config::{Config, Duration, Problems};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What profcol says about itself.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, Serialize)]
#[serde(default)]
pub struct TelemetrySettings {
    /// Log lines.
    pub logs: LogSettings,
    /// Metrics in Prometheus' format.
    pub metrics: MetricSettings,
    /// Attributes that say which agent this is; exported as the metric `target_info`.
    pub resource: BTreeMap<String, Option<String>>,
}

/// Log lines.
#[derive(Clone, Debug, Deserialize, JsonSchema, Serialize)]
#[serde(default)]
pub struct LogSettings {
    /// The least severe level that is written.
    pub level: LogLevel,
    /// `console` for people, `json` for machines.
    pub encoding: LogEncoding,
    /// `stderr`, `stdout` or paths of files; all get every line.
    pub output_paths: Vec<String>,
    /// Fields added to every line.
    pub initial_fields: BTreeMap<String, String>,
    /// Bounds floods of equal lines.
    pub sampling: LogSampling,
}

/// Bounds floods of equal lines.
#[derive(Clone, Debug, Deserialize, JsonSchema, Serialize)]
#[serde(default)]
pub struct LogSampling {
    pub enabled: bool,
    /// The window in which equal lines are counted.
    pub tick: Duration,
    /// So many of each are written in every window.
    pub initial: u64,
    /// After that every so many-th; 0 writes no more of them.
    pub thereafter: u64,
}

#[derive(Clone, Copy, Debug, Default, Deserialize, JsonSchema, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum LogLevel {
    Debug,
    #[default]
    Info,
    Warn,
    Error,
}

#[derive(Clone, Copy, Debug, Default, Deserialize, JsonSchema, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum LogEncoding {
    #[default]
    Console,
    Json,
}

/// Metrics in Prometheus' format.
#[derive(Clone, Debug, Deserialize, JsonSchema, Serialize)]
#[serde(default)]
pub struct MetricSettings {
    /// `none` switches metrics off.
    pub level: MetricLevel,
    /// Where they can be read.
    pub readers: Vec<MetricReader>,
}

#[derive(Clone, Copy, Debug, Default, Deserialize, JsonSchema, PartialEq, Eq, Serialize)]
#[schemars(extend("x-case-insensitive" = true))]
pub enum MetricLevel {
    None,
    Basic,
    #[default]
    Normal,
    Detailed,
}

#[derive(Clone, Debug, Default, Deserialize, JsonSchema, Serialize)]
#[serde(default)]
pub struct MetricReader {
    pub pull: PullReader,
}

#[derive(Clone, Debug, Default, Deserialize, JsonSchema, Serialize)]
#[serde(default)]
pub struct PullReader {
    pub exporter: PullExporter,
}

#[derive(Clone, Debug, Default, Deserialize, JsonSchema, Serialize)]
#[serde(default)]
pub struct PullExporter {
    pub prometheus: PrometheusReader,
}

/// An HTTP server that answers `/metrics`.
#[derive(Clone, Debug, Deserialize, JsonSchema, Serialize)]
#[serde(default)]
pub struct PrometheusReader {
    pub host: String,
    pub port: u16,
}

// === defaults ===

impl Default for LogSettings {
    fn default() -> Self {
        Self {
            level: LogLevel::default(),
            encoding: LogEncoding::default(),
            output_paths: vec!["stderr".to_owned()],
            initial_fields: BTreeMap::new(),
            sampling: LogSampling::default(),
        }
    }
}

impl Default for LogSampling {
    fn default() -> Self {
        Self {
            enabled: true,
            tick: Duration::from_secs(10),
            initial: 10,
            thereafter: 100,
        }
    }
}

impl Default for MetricSettings {
    fn default() -> Self {
        Self {
            level: MetricLevel::default(),
            readers: vec![MetricReader::default()],
        }
    }
}

impl Default for PrometheusReader {
    fn default() -> Self {
        Self {
            host: "localhost".to_owned(),
            port: 8888,
        }
    }
}

// === validation ===

impl Config for TelemetrySettings {
    fn validate(&self, problems: &mut Problems) {
        if self.logs.output_paths.is_empty() {
            problems.add(
                "logs::output_paths",
                "must name at least one place, such as stderr",
            );
        }
        if self.metrics.level != MetricLevel::None && self.metrics.readers.is_empty() {
            problems.add(
                "metrics::readers",
                "collector telemetry metrics reader should exist when metric level is not none",
            );
        }
    }
}
