//! The options of `otlp_grpc`, compatible with the Collector.

use profcol_component::DeliverySettings;
use profcol_config::{Config, Problems};
use profcol_net::GrpcClientSettings;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Sends profiles over OTLP gRPC.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, Serialize)]
#[serde(default)]
pub struct OtlpGrpcConfig {
    #[serde(flatten)]
    pub client: GrpcClientSettings,
    #[serde(flatten)]
    pub delivery: DeliverySettings,
    /// Maximum request size, in MiB; larger batches are split. 0 detects the limit from the server's errors.
    #[serde(skip_serializing_if = "crate::shared::otlp::is_zero")]
    pub max_request_size_mib: u32,
}

impl Config for OtlpGrpcConfig {
    fn validate(&self, problems: &mut Problems) {
        self.client.validate(problems);
        self.delivery.validate(problems);
    }
}
