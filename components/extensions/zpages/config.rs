//! The options of `zpages`: the Collector's.

use profcol_config::{Config, Present, Problems};
use profcol_net::tls::ServerTls;
use profcol_net::{HttpServerSettings, is_loopback};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Serves pages that show the service, its pipelines and its extensions.
#[derive(Clone, Debug, Deserialize, JsonSchema, Serialize)]
#[serde(default)]
pub struct ZPagesConfig {
    /// Address to listen on: `host:port`. It must be a loopback address, unless `tls` requires client certificates.
    pub endpoint: String,
    /// TLS settings; without this section connections are not encrypted.
    pub tls: Present<ServerTls>,
    /// Names under which browsers may reach the pages, besides `localhost`, IP addresses and the host of
    /// `endpoint`; others are refused, which protects from DNS rebinding.
    pub allowed_hosts: Vec<String>,
}

/// Requests have no body.
const MAX_BODY: usize = 4096;
/// Enough for several users, but bounded.
const MAX_CONNECTIONS: usize = 32;

impl Default for ZPagesConfig {
    fn default() -> Self {
        Self {
            endpoint: "localhost:55679".to_owned(),
            tls: Present::default(),
            allowed_hosts: Vec::new(),
        }
    }
}

impl Config for ZPagesConfig {
    fn validate(&self, problems: &mut Problems) {
        if self.endpoint.is_empty() {
            problems.add(
                "endpoint",
                "\"endpoint\" is required when using the \"zpages\" extension",
            );
            return;
        }
        self.server().validate(problems);
        if !is_loopback(&self.endpoint) && !self.asks_for_certificates() {
            problems.add(
                "endpoint",
                "the pages must not be public: listen on a loopback address such as localhost:55679, or set `tls::client_ca_file`",
            );
        }
    }
}

impl ZPagesConfig {
    pub(super) fn asks_for_certificates(&self) -> bool {
        self.tls
            .as_ref()
            .is_some_and(|tls| !tls.client_ca_file.is_empty())
    }

    pub(super) fn server(&self) -> HttpServerSettings {
        HttpServerSettings {
            endpoint: self.endpoint.clone(),
            tls: self.tls.clone(),
            max_request_body_size: MAX_BODY,
            max_connections: MAX_CONNECTIONS,
            ..HttpServerSettings::default()
        }
    }
}
