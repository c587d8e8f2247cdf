//! The options of `otlp_grpc`, as the Collector has them.

use profcol_component::DeliverySettings;
use profcol_config::{Config, Problems};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Sends profiles over OTLP gRPC.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, Serialize)]
#[serde(default)]
pub struct OtlpGrpcConfig {
    /// Address and port of the destination.
    pub endpoint: String,
    #[serde(flatten)]
    pub delivery: DeliverySettings,
}

impl Config for OtlpGrpcConfig {
    fn validate(&self, problems: &mut Problems) {
        if self.endpoint.trim().is_empty() {
            problems.add("", "requires a non-empty \"endpoint\"");
        }
        self.delivery.validate(problems);
    }
}
