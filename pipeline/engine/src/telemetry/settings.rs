//! `service::telemetry`: what profcol says about itself.
//!
//! What the Collector accepts here and profcol would not act on is refused with a word on what to do
//! (`x-refused`), so that nobody waits for what never comes.

use std::collections::BTreeMap;

use profcol_component::Capabilities;
use profcol_config::{Config, Duration, Problems};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What profcol says about itself.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, Serialize)]
#[serde(default)]
#[schemars(extend("x-refused" = {
    "traces": "profcol records no traces of itself, remove this section",
}))]
pub struct TelemetrySettings {
    /// Log lines.
    pub logs: LogSettings,
    /// Metrics in Prometheus' format.
    pub metrics: MetricSettings,
    /// Attributes that say which agent this is; exported as the metric `target_info`.
    /// `key: value`.
    #[schemars(extend("x-refused" = {
        "attributes": "write each attribute as `key: value` under `resource` itself",
        "detection/development": "nothing is detected, write what should be known as `key: value`",
        "detectors": "nothing is detected, write what should be known as `key: value`",
        "schema_url": "metrics in Prometheus' format carry no schema, remove it",
    }))]
    pub resource: BTreeMap<String, Option<String>>,
}

/// Log lines.
#[derive(Clone, Debug, Deserialize, JsonSchema, Serialize)]
#[serde(default)]
#[schemars(extend("x-refused" = {
    "development": "write `level: debug` and `encoding: console` instead",
    "disable_caller": "log lines name no place in the code, remove it",
    "disable_stacktrace": "log lines carry no stack traces, remove it",
    "error_output_paths": "what goes wrong with logging itself is written to stderr, remove it",
    "processors": "log lines are not exported, collect them from `output_paths`",
}))]
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
    /// Off: every line is written.
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

/// Metrics in Prometheus' format.
#[derive(Clone, Debug, Deserialize, JsonSchema, Serialize)]
#[serde(default)]
#[schemars(extend("x-refused" = {
    "address": "write the address under `readers`, as `- {pull: {exporter: {prometheus: {host: localhost, port: 8888}}}}`",
    "views": "metrics are served as they are, drop or rename them where they are scraped",
}))]
pub struct MetricSettings {
    /// `none` switches metrics off.
    pub level: MetricLevel,
    /// Where they can be read.
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

/// One place where metrics can be read.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, Serialize)]
#[serde(default)]
#[schemars(extend("x-refused" = {
    "periodic": "metrics are not pushed, let them be scraped from a `pull` reader",
}))]
pub struct MetricReader {
    /// Whoever wants metrics asks for them.
    pub pull: PullReader,
}

/// Whoever wants metrics asks for them.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, Serialize)]
#[serde(default)]
pub struct PullReader {
    /// In which format.
    pub exporter: PullExporter,
}

/// The format of metrics.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, Serialize)]
#[serde(default)]
pub struct PullExporter {
    /// Prometheus' text format, over HTTP.
    pub prometheus: PrometheusReader,
}

/// An HTTP server that answers `/metrics`.
#[derive(Clone, Debug, Deserialize, JsonSchema, Serialize)]
#[serde(default)]
#[schemars(extend("x-refused" = {
    "with_resource_constant_labels": "`service::telemetry::resource` is told by the metric `target_info`, join with that",
}))]
pub struct PrometheusReader {
    /// Name or address to listen on.
    pub host: String,
    /// 0 picks a free port.
    pub port: u16,
    /// Metrics have no labels that name a scope; only `true` is possible.
    pub without_scope_info: bool,
    /// Names have no suffix such as `_total`; only `true` is possible.
    pub without_type_suffix: bool,
    /// Names have no unit; only `true` is possible.
    pub without_units: bool,
    /// Nobody chose the port: where it is taken, any other will do.
    #[serde(skip)]
    pub may_move: bool,
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
                            may_move: true,
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
            may_move: false,
        }
    }
}

impl TelemetrySettings {
    /// What it takes to listen where the settings say.
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
                "must name at least one place, such as stderr",
            );
        }
        for (position, path) in self.logs.output_paths.iter().enumerate() {
            if path.is_empty() {
                let key = format!("logs::output_paths::{position}");
                problems.add(&key, "must not be empty, write stderr, stdout or a path");
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
            problems.add("host", "must not be empty, write 0.0.0.0 for every address");
        }
        for (key, without) in [
            ("without_scope_info", self.without_scope_info),
            ("without_type_suffix", self.without_type_suffix),
            ("without_units", self.without_units),
        ] {
            if !without {
                problems.add(
                    key,
                    "only true is possible: metrics have their plain names here",
                );
            }
        }
    }
}
