//! What profcol says about itself: logs and metrics.

mod logs;
mod metrics;
mod process;
mod sampling;
mod settings;

pub use logs::{LogError, init as init_logs};
pub use metrics::{MetricsError, MetricsServer};
pub use settings::{
    LogEncoding, LogLevel, LogSampling, LogSettings, MetricLevel, MetricReader, MetricSettings,
    PrometheusReader, PullExporter, PullReader, TelemetrySettings,
};
