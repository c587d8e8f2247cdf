//! `service::telemetry`: telemetry of profcol itself.
//!
//! Collector keys that profcol does not support are refused with a hint (`x-refused`).

use std::collections::BTreeMap;
use std::path::PathBuf;

use profcol_component::{Capabilities, files};
use profcol_config::{Config, Duration, Problems};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Telemetry of profcol itself.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, Serialize)]
#[serde(default)]
#[schemars(extend("x-refused" = {
    "traces": "profcol does not trace itself; remove this section",
}))]
pub struct TelemetrySettings {
    /// Log lines.
    pub logs: LogSettings,
    /// Metrics in the Prometheus format.
    pub metrics: MetricSettings,
    /// Resource attributes of this process, as `key: value`; exported as the metric `target_info`.
    #[schemars(extend("x-refused" = {
        "attributes": "write each attribute as `key: value` under `resource` itself",
        "detection/development": "resource detection is not supported; write attributes as `key: value`",
        "detectors": "resource detection is not supported; write attributes as `key: value`",
        "schema_url": "the Prometheus format has no schema URL; remove it",
    }))]
    pub resource: BTreeMap<String, Option<String>>,
}

/// Log lines.
#[derive(Clone, Debug, Deserialize, JsonSchema, Serialize)]
#[serde(default)]
#[schemars(extend("x-refused" = {
    "development": "write `level: debug` and `encoding: console` instead",
    "disable_caller": "log lines have no caller information; remove it",
    "disable_stacktrace": "log lines have no stack traces; remove it",
    "error_output_paths": "errors of the logger are written to stderr; remove it",
    "processors": "log lines are not exported; collect them from `output_paths`",
}))]
pub struct LogSettings {
    /// Minimum level that is logged.
    pub level: LogLevel,
    /// Format of log lines: `console` or `json`.
    pub encoding: LogEncoding,
    /// Outputs: `stderr`, `stdout` or file paths; each gets every line.
    pub output_paths: Vec<String>,
    /// Fields added to every line.
    pub initial_fields: BTreeMap<String, String>,
    /// Sampling of repeated log lines.
    pub sampling: LogSampling,
}

/// Sampling of repeated log lines.
#[derive(Clone, Debug, Deserialize, JsonSchema, Serialize)]
#[serde(default)]
pub struct LogSampling {
    /// If false, every line is written.
    pub enabled: bool,
    /// Interval in which repeated lines are counted.
    pub tick: Duration,
    /// Number of repeated lines written per interval before sampling starts.
    pub initial: u64,
    /// After that, every Nth line is written; 0 writes none.
    pub thereafter: u64,
}

#[derive(Clone, Copy, Debug, Default, Deserialize, JsonSchema, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
#[schemars(extend("x-ignore-case" = true, "x-unknown" = "unrecognized level:"))]
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

/// Metrics in the Prometheus format.
#[derive(Clone, Debug, Deserialize, JsonSchema, Serialize)]
#[serde(default)]
#[schemars(extend("x-refused" = {
    "address": "write the address under `readers`, as `- {pull: {exporter: {prometheus: {host: localhost, port: 8888}}}}`",
    "views": "views are not supported, relabel metrics in the scraper",
}))]
pub struct MetricSettings {
    /// `none` disables metrics.
    pub level: MetricLevel,
    /// Readers that expose metrics.
    pub readers: Vec<MetricReader>,
}

#[derive(Clone, Copy, Debug, Default, Deserialize, JsonSchema, PartialEq, Eq, Serialize)]
#[schemars(extend("x-ignore-case" = true, "x-unknown" = "unknown metrics level"))]
pub enum MetricLevel {
    None,
    Basic,
    #[default]
    Normal,
    Detailed,
}

/// A metric reader.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, Serialize)]
#[serde(default)]
#[schemars(extend("x-refused" = {
    "periodic": "pushing metrics is not supported, use a `pull` reader",
}))]
pub struct MetricReader {
    /// Reader that is scraped.
    pub pull: PullReader,
}

/// Reader that is scraped.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, Serialize)]
#[serde(default)]
pub struct PullReader {
    /// Exporter of the reader.
    pub exporter: PullExporter,
}

/// Exporter of a pull reader.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, Serialize)]
#[serde(default)]
pub struct PullExporter {
    /// Prometheus text format over HTTP.
    pub prometheus: PrometheusReader,
}

/// An HTTP server that answers `/metrics`.
#[derive(Clone, Debug, Deserialize, JsonSchema, Serialize)]
#[serde(default)]
#[schemars(extend("x-refused" = {
    "with_resource_constant_labels": "`service::telemetry::resource` is exported as the metric `target_info`, join with that",
}))]
pub struct PrometheusReader {
    /// Host name or address to listen on.
    pub host: String,
    /// 0 picks a free port.
    pub port: u16,
    /// Omit labels with the instrumentation scope; only `true` is supported.
    pub without_scope_info: bool,
    /// Omit suffixes such as `_total`; only `true` is supported.
    pub without_type_suffix: bool,
    /// Omit units from metric names; only `true` is supported.
    pub without_units: bool,
    /// The port is the default: use any other one if it is taken.
    #[serde(skip)]
    pub is_default_port: bool,
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
            readers: vec![MetricReader {
                pull: PullReader {
                    exporter: PullExporter {
                        prometheus: PrometheusReader {
                            is_default_port: true,
                            ..PrometheusReader::default()
                        },
                    },
                },
            }],
        }
    }
}

impl Default for PrometheusReader {
    fn default() -> Self {
        Self {
            host: "localhost".to_owned(),
            port: 8888,
            without_scope_info: true,
            without_type_suffix: true,
            without_units: true,
            is_default_port: false,
        }
    }
}

impl LogSettings {
    /// The directories of the log files.
    pub(crate) fn directories(&self) -> Vec<PathBuf> {
        let log_files = files::of_outputs(&self.output_paths);
        log_files.map(files::directory_of).collect()
    }
}

impl TelemetrySettings {
    /// Capabilities needed to listen on the configured addresses.
    pub(crate) fn capabilities(&self) -> Capabilities {
        let readers = match self.metrics.level {
            MetricLevel::None => &[],
            _ => self.metrics.readers.as_slice(),
        };
        readers.iter().fold(Capabilities::NONE, |needed, reader| {
            let PrometheusReader { host, port, .. } = &reader.pull.exporter.prometheus;
            needed | Capabilities::to_listen(&format!("{host}:{port}"))
        })
    }
}

// === validation ===

impl Config for TelemetrySettings {
    fn validate(&self, problems: &mut Problems) {
        if self.logs.sampling.tick.is_negative() || self.logs.sampling.tick.is_zero() {
            problems.add("logs::sampling::tick", "must be positive");
        }
        if self.logs.output_paths.is_empty() {
            problems.add(
                "logs::output_paths",
                "must name at least one output, such as stderr",
            );
        }
        for (position, path) in self.logs.output_paths.iter().enumerate() {
            if path.is_empty() {
                let key = format!("logs::output_paths::{position}");
                problems.add(&key, "must not be empty, use stderr, stdout or a path");
            }
        }
        if self.metrics.level != MetricLevel::None && self.metrics.readers.is_empty() {
            problems.add(
                "metrics::readers",
                "collector telemetry metrics reader should exist when metric level is not none",
            );
        }
        for (position, reader) in self.metrics.readers.iter().enumerate() {
            let place = format!("metrics::readers::{position}::pull::exporter::prometheus");
            problems.nested(&place, |problems| {
                reader.pull.exporter.prometheus.validate(problems);
            });
        }
    }
}

impl PrometheusReader {
    fn validate(&self, problems: &mut Problems) {
        if self.host.is_empty() {
            problems.add("host", "must not be empty, use 0.0.0.0 for every address");
        }
        for (key, without) in [
            ("without_scope_info", self.without_scope_info),
            ("without_type_suffix", self.without_type_suffix),
            ("without_units", self.without_units),
        ] {
            if !without {
                problems.add(key, "only true is supported");
            }
        }
    }
}
