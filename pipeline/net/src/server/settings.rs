//! Server settings, with the Collector's names and defaults.

use profcol_config::{ComponentId, Config, Duration, Headers, Present, Problems};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::listen::{Transport, split_host_port};
use crate::SettingsError;
use crate::compress::Encoding;
use crate::settings::{header_map, is_default};
use crate::tls::ServerTls;

/// A gRPC server.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct GrpcServerSettings {
    /// Address to listen on: `host:port`, or the path of a Unix socket if `transport` is `unix`.
    pub endpoint: String,
    /// `tcp` (both IP versions), `tcp4`, `tcp6` or `unix`.
    pub transport: Transport,
    /// TLS settings; without this section connections are not encrypted.
    #[serde(skip_serializing_if = "is_default")]
    pub tls: Present<ServerTls>,
    /// Maximum message size, in MiB, before and after decompression. The Collector's default of 4
    /// is too small for profilers.
    pub max_recv_msg_size_mib: u32,
    /// Maximum number of concurrent calls per connection; 0 means 100.
    #[serde(skip_serializing_if = "is_default")]
    pub max_concurrent_streams: u32,
    /// Maximum read buffer per connection, in bytes; 0 means 128 KiB. Allocated only while in use.
    #[serde(skip_serializing_if = "is_default")]
    pub read_buffer_size: usize,
    /// Maximum write buffer per connection, in bytes; 0 means 128 KiB.
    #[serde(skip_serializing_if = "is_default")]
    pub write_buffer_size: usize,
    /// Keepalive pings and connection lifetime.
    pub keepalive: GrpcServerKeepalive,
    /// Extension that authenticates calls.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub auth: Option<AuthSettings>,
    /// Attach the metadata of a call to its data, for processors and exporters.
    #[serde(skip_serializing_if = "is_default")]
    pub include_metadata: bool,
    /// Maximum number of open connections; further ones are closed immediately and counted.
    pub max_connections: usize,
}

impl Default for GrpcServerSettings {
    fn default() -> GrpcServerSettings {
        GrpcServerSettings {
            endpoint: "localhost:4317".to_owned(),
            transport: Transport::Tcp,
            tls: Present(None),
            max_recv_msg_size_mib: 64,
            max_concurrent_streams: 0,
            read_buffer_size: 0,
            write_buffer_size: 0,
            keepalive: GrpcServerKeepalive::default(),
            auth: None,
            include_metadata: false,
            max_connections: MAX_CONNECTIONS,
        }
    }
}

/// Enough for ten thousand agents, and within the usual limit of open files.
const MAX_CONNECTIONS: usize = 16_384;

/// `keepalive` of a gRPC server.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct GrpcServerKeepalive {
    pub server_parameters: ServerParameters,
    pub enforcement_policy: EnforcementPolicy,
}

/// Keepalive pings and connection lifetime. 0 means never, unless a default is given.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct ServerParameters {
    /// Close a connection without calls after this time.
    #[serde(skip_serializing_if = "is_default")]
    pub max_connection_idle: Duration,
    /// Ask clients to reconnect after this time (± 10 %), to spread them over new servers.
    #[serde(skip_serializing_if = "is_default")]
    pub max_connection_age: Duration,
    /// Time for active calls to finish after `max_connection_age`.
    #[serde(skip_serializing_if = "is_default")]
    pub max_connection_age_grace: Duration,
    /// Ping an idle client after this time; 0 means 2 hours.
    #[serde(skip_serializing_if = "is_default")]
    pub time: Duration,
    /// Close the connection if a ping is not answered within this time; 0 means 20 seconds.
    #[serde(skip_serializing_if = "is_default")]
    pub timeout: Duration,
}

/// Limits for keepalive pings of clients. A client that exceeds them three times gets GOAWAY.
/// Unlike the Collector, an empty section does not limit pings.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct EnforcementPolicy {
    /// Minimum interval between pings; 0 means no limit.
    #[serde(skip_serializing_if = "is_default")]
    pub min_time: Duration,
    /// Allow pings without active calls; if false, only every 2 hours.
    #[serde(skip_serializing_if = "is_default")]
    pub permit_without_stream: bool,
}

/// Authentication by an extension.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct AuthSettings {
    /// Id of an extension, such as `basicauth/server`.
    pub authenticator: ComponentId,
}

/// An HTTP server.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct HttpServerSettings {
    /// Address to listen on: `host:port`, or the path of a Unix socket if `transport` is `unix`.
    pub endpoint: String,
    /// `tcp` (both IP versions), `tcp4`, `tcp6` or `unix`.
    pub transport: Transport,
    /// TLS settings; without this section connections are not encrypted.
    pub tls: Present<ServerTls>,
    /// Cross-origin resource sharing (CORS): which web pages may send requests.
    pub cors: Present<Cors>,
    /// Extension that authenticates requests.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub auth: Option<AuthSettings>,
    /// Maximum body size, in bytes, before and after decompression; 0 means 64 MiB (the Collector's
    /// default is 20 MiB).
    #[serde(skip_serializing_if = "is_default")]
    pub max_request_body_size: usize,
    /// Attach the headers of a request to its data, for processors and exporters.
    #[serde(skip_serializing_if = "is_default")]
    pub include_metadata: bool,
    /// Headers to add to every response.
    #[serde(skip_serializing_if = "is_default")]
    pub response_headers: Headers,
    /// Accepted values of `content-encoding`; "" accepts uncompressed bodies. Empty accepts gzip,
    /// zstd, zlib, deflate, snappy, x-snappy-framed and lz4.
    #[serde(skip_serializing_if = "is_default")]
    pub compression_algorithms: Vec<String>,
    /// Timeout for reading a request; 0 means no limit, as long as data keeps arriving.
    #[serde(skip_serializing_if = "is_default")]
    pub read_timeout: Duration,
    /// Timeout for reading request headers; 0 means `read_timeout`.
    pub read_header_timeout: Duration,
    /// Close a connection if the client does not read its response for this long; 0 means never.
    pub write_timeout: Duration,
    /// Reuse of idle connections.
    pub keepalive: HttpServerKeepalive,
    /// Deprecated: use `keepalive::idle_timeout`.
    #[serde(skip_serializing)]
    pub idle_timeout: Option<Duration>,
    /// Deprecated: use `keepalive::enabled`.
    #[serde(skip_serializing)]
    pub keep_alives_enabled: Option<bool>,
    /// Maximum number of open connections; further ones are closed immediately and counted.
    pub max_connections: usize,
}

impl Default for HttpServerSettings {
    fn default() -> HttpServerSettings {
        HttpServerSettings {
            endpoint: "localhost:4318".to_owned(),
            transport: Transport::Tcp,
            tls: Present(None),
            cors: Present(None),
            auth: None,
            max_request_body_size: 0,
            include_metadata: false,
            response_headers: Headers::default(),
            compression_algorithms: Vec::new(),
            read_timeout: Duration::ZERO,
            read_header_timeout: Duration::from_secs(60),
            write_timeout: Duration::from_secs(30),
            keepalive: HttpServerKeepalive::default(),
            idle_timeout: None,
            keep_alives_enabled: None,
            max_connections: MAX_CONNECTIONS,
        }
    }
}

impl Config for GrpcServerSettings {
    fn validate(&self, problems: &mut Problems) {
        check_endpoint(&self.endpoint, self.transport, problems);
        if let Some(tls) = &*self.tls {
            problems.nested("tls", |problems| tls.validate(problems));
        }
        if self.max_recv_msg_size_mib == 0 {
            problems.add("max_recv_msg_size_mib", "must be positive");
        }
        let parameters = &self.keepalive.server_parameters;
        for (key, duration) in [
            (
                "keepalive::server_parameters::max_connection_idle",
                parameters.max_connection_idle,
            ),
            (
                "keepalive::server_parameters::max_connection_age",
                parameters.max_connection_age,
            ),
            (
                "keepalive::server_parameters::max_connection_age_grace",
                parameters.max_connection_age_grace,
            ),
            ("keepalive::server_parameters::time", parameters.time),
            ("keepalive::server_parameters::timeout", parameters.timeout),
            (
                "keepalive::enforcement_policy::min_time",
                self.keepalive.enforcement_policy.min_time,
            ),
        ] {
            check_duration(key, duration, problems);
        }
        check_connections(self.max_connections, problems);
    }
}

impl Config for HttpServerSettings {
    fn validate(&self, problems: &mut Problems) {
        check_endpoint(&self.endpoint, self.transport, problems);
        if let Some(tls) = &*self.tls {
            problems.nested("tls", |problems| tls.validate(problems));
        }
        for (key, duration) in [
            ("read_timeout", self.read_timeout),
            ("read_header_timeout", self.read_header_timeout),
            ("write_timeout", self.write_timeout),
            ("keepalive::idle_timeout", self.keepalive.idle_timeout),
            ("idle_timeout", self.idle_timeout.unwrap_or_default()),
        ] {
            check_duration(key, duration, problems);
        }
        if let Err(error) = self.resolved_keepalive() {
            problems.add("keepalive", error);
        }
        if let Err(error) = header_map(&self.response_headers) {
            problems.add("response_headers", error);
        }
        for name in &self.compression_algorithms {
            if !name.is_empty() && Encoding::from_http(name, &[]).is_none() {
                problems.add(
                    "compression_algorithms",
                    format!("unsupported compression type {name:?}"),
                );
            }
        }
        check_connections(self.max_connections, problems);
    }
}

fn check_endpoint(endpoint: &str, transport: Transport, problems: &mut Problems) {
    if endpoint.is_empty() {
        problems.add("endpoint", "must not be empty");
    } else if transport != Transport::Unix
        && let Err(error) = split_host_port(endpoint)
    {
        problems.add("endpoint", error);
    }
}

fn check_duration(key: &str, duration: Duration, problems: &mut Problems) {
    if duration.is_negative() {
        problems.add(key, "must be non-negative");
    }
}

fn check_connections(max: usize, problems: &mut Problems) {
    if max == 0 {
        problems.add("max_connections", "must be positive");
    }
}

impl HttpServerSettings {
    /// Maximum body size, or its default.
    pub fn max_body(&self) -> usize {
        if self.max_request_body_size == 0 {
            64 << 20
        } else {
            self.max_request_body_size
        }
    }

    /// Merges `keepalive` with its deprecated keys; both at once are refused, as in the Collector.
    pub(super) fn resolved_keepalive(&self) -> Result<HttpServerKeepalive, SettingsError> {
        let mut keepalive = self.keepalive.clone();
        let old = self.idle_timeout.is_some() || self.keep_alives_enabled == Some(false);
        if old && keepalive != HttpServerKeepalive::default() {
            return Err(SettingsError::OldKeepaliveKeys {
                old: "`idle_timeout` and `keep_alives_enabled`",
            });
        }
        if let Some(timeout) = self.idle_timeout {
            keepalive.idle_timeout = timeout;
        }
        if let Some(enabled) = self.keep_alives_enabled {
            keepalive.enabled = enabled;
        }
        Ok(keepalive)
    }
}

/// `keepalive` of an HTTP server.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct HttpServerKeepalive {
    /// Reuse connections for further requests.
    #[serde(skip_serializing_if = "is_true")]
    pub enabled: bool,
    /// Close connections idle for this long; 0 means never.
    pub idle_timeout: Duration,
}

impl Default for HttpServerKeepalive {
    fn default() -> HttpServerKeepalive {
        HttpServerKeepalive {
            enabled: true,
            idle_timeout: Duration::from_secs(60),
        }
    }
}

/// Cross-origin resource sharing (CORS).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Cors {
    /// Allowed origins, such as `https://*.example.com`; `*` matches any text.
    pub allowed_origins: Vec<String>,
    /// Request headers allowed in addition to the safelisted ones; `*` allows all.
    #[serde(skip_serializing_if = "is_default")]
    pub allowed_headers: Vec<String>,
    /// Response headers exposed to the page.
    #[serde(skip_serializing_if = "is_default")]
    pub exposed_headers: Vec<String>,
    /// How long browsers may cache preflight responses, in seconds.
    #[serde(skip_serializing_if = "is_default")]
    pub max_age: u32,
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde calls it with a reference"
)]
fn is_true(value: &bool) -> bool {
    *value
}
