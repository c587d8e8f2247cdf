//! The options of `health_check`: the Collector's.

use profcol_config::{Config, Headers, Present, Problems};
use profcol_net::tls::ServerTls;
use profcol_net::{HttpServerSettings, Transport};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Reports the health of the pipelines over HTTP.
#[derive(Clone, Debug, Deserialize, JsonSchema, Serialize)]
#[serde(default)]
pub struct HealthCheckConfig {
    /// Address to listen on: `host:port`, or the path of a Unix socket if `transport` is `unix`.
    pub endpoint: String,
    /// `tcp` (both IP versions), `tcp4`, `tcp6` or `unix`.
    pub transport: Transport,
    /// TLS settings; without this section connections are not encrypted.
    pub tls: Present<ServerTls>,
    /// Headers to add to every response.
    pub response_headers: Headers,
    /// The path of the health check; if it ends with `/`, paths below it too.
    pub path: String,
    /// Text to send instead of the status as JSON.
    pub response_body: Present<ResponseBody>,
}

/// Text to send instead of the status as JSON.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, Serialize)]
#[serde(default)]
pub struct ResponseBody {
    /// Sent with status 200.
    pub healthy: String,
    /// Sent with status 503.
    pub unhealthy: String,
}

impl Default for HealthCheckConfig {
    fn default() -> Self {
        Self {
            endpoint: "localhost:13133".to_owned(),
            transport: Transport::default(),
            tls: Present::default(),
            response_headers: Headers::default(),
            path: "/".to_owned(),
            response_body: Present::default(),
        }
    }
}

impl Config for HealthCheckConfig {
    fn validate(&self, problems: &mut Problems) {
        if self.endpoint.is_empty() {
            problems.add("endpoint", "bad config: endpoint must be specified");
        } else {
            self.server().validate(problems);
        }
        if !self.path.starts_with('/') {
            problems.add("path", "bad config: path must start with /");
        }
    }
}

impl HealthCheckConfig {
    pub(super) fn server(&self) -> HttpServerSettings {
        HttpServerSettings {
            endpoint: self.endpoint.clone(),
            transport: self.transport,
            tls: self.tls.clone(),
            response_headers: self.response_headers.clone(),
            max_request_body_size: MAX_BODY,
            max_connections: MAX_CONNECTIONS,
            ..HttpServerSettings::default()
        }
    }
}

/// Request bodies are not used.
const MAX_BODY: usize = 4096;

/// Enough for every prober, but bounded.
const MAX_CONNECTIONS: usize = 128;
