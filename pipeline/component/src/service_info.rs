//! Description and telemetry of the running service, for status pages.

use std::sync::Arc;

use parking_lot::RwLock;
use serde::Serialize;
use serde_json::Value;

use crate::{Meter, RecentLog, StatusBoard};

/// The description of the running configuration, which a reload replaces. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct CurrentService(Arc<RwLock<Arc<ServiceInfo>>>);

impl CurrentService {
    pub fn get(&self) -> Arc<ServiceInfo> {
        Arc::clone(&self.0.read())
    }

    pub fn set(&self, info: ServiceInfo) {
        *self.0.write() = Arc::new(info);
    }
}

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
