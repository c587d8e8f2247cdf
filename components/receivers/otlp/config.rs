//! The options of `otlp`: the Collector's, and three of our own.

use profcol_config::{Config, Present, Problems};
use profcol_net::{GrpcServerSettings, HttpServerSettings};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::shared::DeduplicateConfig;

/// Receives profiles over OTLP, by gRPC and HTTP.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, Serialize)]
#[serde(default)]
pub struct OtlpConfig {
    /// What to listen on; at least one.
    pub protocols: Protocols,
    /// What to do with invalid requests.
    pub validation: Validation,
    /// When to answer a request.
    pub answer_when: AnswerWhen,
    /// Take a batch only once, by the id that profcol's exporters send with it; disabled if absent.
    pub deduplicate: Present<DeduplicateConfig>,
}

/// What to listen on.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, Serialize)]
#[serde(default)]
pub struct Protocols {
    /// OTLP over gRPC, by default on `localhost:4317`.
    pub grpc: Present<GrpcServerSettings>,
    /// OTLP over HTTP, protobuf and JSON, by default on `localhost:4318`.
    pub http: Present<HttpServerSettings>,
}

/// What to do with invalid requests.
#[derive(Clone, Copy, Debug, Default, Deserialize, JsonSchema, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Validation {
    /// Reject the request with an error.
    #[default]
    Reject,
    /// Drop and count the invalid samples, and report them to the client.
    Repair,
}

/// When to answer a request.
#[derive(Clone, Copy, Debug, Default, Deserialize, JsonSchema, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum AnswerWhen {
    /// Answer when the queues of all exporters accepted the batch.
    #[default]
    Queued,
    /// Answer when all exporters delivered the batch or gave up: nothing is lost if profcol crashes in between, as
    /// long as the client retries.
    Delivered,
}

impl Protocols {
    pub(super) fn endpoints(&self) -> impl Iterator<Item = &str> {
        let grpc = self.grpc.as_ref().map(|grpc| grpc.endpoint.as_str());
        let http = self.http.as_ref().map(|http| http.endpoint.as_str());
        grpc.into_iter().chain(http)
    }
}

impl Config for OtlpConfig {
    fn validate(&self, problems: &mut Problems) {
        if self.protocols.grpc.is_none() && self.protocols.http.is_none() {
            problems.add(
                "",
                "must specify at least one protocol when using the OTLP receiver",
            );
        }
        problems.nested("protocols", |problems| {
            if let Some(grpc) = &*self.protocols.grpc {
                problems.nested("grpc", |problems| grpc.validate(problems));
            }
            if let Some(http) = &*self.protocols.http {
                problems.nested("http", |problems| http.validate(problems));
            }
        });
        if let Some(deduplicate) = &*self.deduplicate {
            problems.nested("deduplicate", |problems| deduplicate.validate(problems));
        }
    }
}

impl From<Validation> for profcol_profile::Validation {
    fn from(validation: Validation) -> Self {
        match validation {
            Validation::Reject => Self::Reject,
            Validation::Repair => Self::Repair,
        }
    }
}
