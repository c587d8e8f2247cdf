//! What runs here and how it does, for pages that show it.

use serde::Serialize;
use serde_json::Value;

use crate::{Meter, RecentLog, StatusBoard};

/// The service as its configuration describes it.
#[derive(Clone, Debug, Default)]
pub struct ServiceInfo {
    pub pipelines: Vec<PipelineInfo>,
    /// All settings with their defaults, secrets replaced.
    pub configuration: Value,
}

/// Ids of a pipeline and of its components, processors in their order.
#[derive(Clone, Debug, Serialize)]
pub struct PipelineInfo {
    pub id: String,
    pub receivers: Vec<String>,
    pub processors: Vec<String>,
    pub exporters: Vec<String>,
}

/// Where a process keeps what it says about itself; cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct SelfTelemetry {
    pub meter: Meter,
    pub board: StatusBoard,
    pub log: RecentLog,
}
