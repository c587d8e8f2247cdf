//! Telemetry of profcol itself: logs and metrics.

mod logs;
mod metrics;
mod process;
mod sampling;
mod settings;

pub use logs::{LogError, init as init_logs};
pub use metrics::{MetricsError, MetricsServer, check as check_metrics};
pub use settings::{
    LogEncoding, LogLevel, LogSampling, LogSettings, MetricLevel, MetricReader, MetricSettings,
    PrometheusReader, PullExporter, PullReader, TelemetrySettings,
};

/// Duration buckets in seconds, from a batch in a processor to a slow backend.
pub(crate) const DURATIONS: &[f64] = &[1e-5, 1e-4, 1e-3, 1e-2, 0.1, 1.0, 10.0, 100.0];
