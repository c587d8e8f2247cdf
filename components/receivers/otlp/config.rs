//! The options of `otlp`, as the Collector has them.

use profcol_config::{Config, Present, Problems};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Takes profiles over OTLP.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, Serialize)]
#[serde(default)]
pub struct OtlpConfig {
    /// What to listen on; at least one.
    pub protocols: Protocols,
    /// What to do with requests that break the rules of the format.
    pub validation: Validation,
}

/// What to listen on.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, Serialize)]
#[serde(default)]
pub struct Protocols {
    /// OTLP over gRPC.
    pub grpc: Present<GrpcConfig>,
}

/// OTLP over gRPC.
#[derive(Clone, Debug, Deserialize, JsonSchema, Serialize)]
#[serde(default)]
pub struct GrpcConfig {
    /// Address and port.
    pub endpoint: String,
}

/// What to do with requests that break the rules of the format.
#[derive(Clone, Copy, Debug, Default, Deserialize, JsonSchema, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Validation {
    /// Refuse the request and say what is wrong with it.
    #[default]
    Reject,
    /// Drop just the bad samples, and count them.
    Repair,
}

impl Default for GrpcConfig {
    fn default() -> Self {
        Self {
            endpoint: "localhost:4317".to_owned(),
        }
    }
}

impl Config for OtlpConfig {
    fn validate(&self, problems: &mut Problems) {
        if self.protocols.grpc.is_none() {
            problems.add(
                "",
                "must specify at least one protocol when using the OTLP receiver",
            );
        }
    }
}
