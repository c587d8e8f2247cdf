//! Description and telemetry of the running service, for status pages.

use serde::Serialize;
use serde_json::Value;

use crate::{Meter, RecentLog, StatusBoard};

/// The configured service.
#[derive(Clone, Debug, Default)]
pub struct ServiceInfo {
    pub pipelines: Vec<PipelineInfo>,
    /// The effective configuration, secrets redacted.
    pub configuration: Value,
}

/// Ids of a pipeline and its components, processors in order.
#[derive(Clone, Debug, Serialize)]
pub struct PipelineInfo {
    pub id: String,
    pub receivers: Vec<String>,
    pub processors: Vec<String>,
    pub exporters: Vec<String>,
}

/// The process's own telemetry; cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct SelfTelemetry {
    pub meter: Meter,
    pub board: StatusBoard,
    pub log: RecentLog,
}
