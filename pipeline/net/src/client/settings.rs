//! Client settings, with the Collector's names and defaults.

use profcol_config::{Config, Duration, Headers, Present, Problem, Problems, Url};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::endpoint::GrpcTarget;
use super::proxy::Proxies;
use crate::compress::{Compression, Level};
use crate::server::AuthSettings;
use crate::settings::{header_map, is_default};
use crate::tls::ClientTls;
use crate::{EndpointError, SettingsError};

/// A gRPC client.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct GrpcClientSettings {
    /// The server: `host:port`, `dns:///host:port`, `http://host:port` (no TLS), `https://host:port`
    /// (TLS whatever `tls::insecure` says) or `unix:///path`.
    #[schemars(extend("format" = "secret-url"))]
    pub endpoint: String,
    /// `gzip`, `zstd`, `snappy` or `none`.
    pub compression: Compression,
    /// TLS settings.
    #[serde(skip_serializing_if = "is_default")]
    pub tls: ClientTls,
    /// Keepalive pings; disabled if this section is absent.
    #[serde(skip_serializing_if = "is_default")]
    pub keepalive: Present<GrpcClientKeepalive>,
    /// Maximum read buffer per connection, in bytes; 0 means 128 KiB. Allocated only while in use.
    #[serde(skip_serializing_if = "is_default")]
    pub read_buffer_size: usize,
    /// Maximum write buffer per connection, in bytes; 0 means 128 KiB. Allocated only while in use.
    #[serde(skip_serializing_if = "is_default")]
    pub write_buffer_size: usize,
    /// While disconnected, calls wait for a connection until their timeout instead of failing.
    #[serde(skip_serializing_if = "is_default")]
    pub wait_for_ready: bool,
    /// Metadata to send with every call.
    #[serde(skip_serializing_if = "is_default")]
    pub headers: Headers,
    /// User agent; by default the program's name and version.
    #[serde(skip_serializing_if = "is_default")]
    pub user_agent: String,
    /// Load balancing over the addresses of the endpoint: `round_robin` or `pick_first`.
    pub balancer_name: Balancer,
    /// Value of the `:authority` header; by default the endpoint.
    #[serde(skip_serializing_if = "is_default")]
    pub authority: String,
    /// Extension that authenticates outgoing requests.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub auth: Option<AuthSettings>,
}

impl Default for GrpcClientSettings {
    fn default() -> GrpcClientSettings {
        GrpcClientSettings {
            endpoint: String::new(),
            compression: Compression::Gzip,
            tls: ClientTls::default(),
            keepalive: Present(None),
            read_buffer_size: 0,
            write_buffer_size: 0,
            wait_for_ready: false,
            headers: Headers::default(),
            user_agent: String::new(),
            balancer_name: Balancer::RoundRobin,
            authority: String::new(),
            auth: None,
        }
    }
}

/// Load balancing over addresses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(extend("x-unknown" = "invalid balancer_name:"))]
#[serde(rename_all = "snake_case")]
pub enum Balancer {
    /// Uses all addresses in turn.
    #[default]
    RoundRobin,
    /// Uses one address, and the next only if that one fails.
    PickFirst,
}

/// `keepalive` of a gRPC client.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct GrpcClientKeepalive {
    /// Interval between pings.
    pub time: Duration,
    /// Close the connection if a ping is not answered within this time.
    pub timeout: Duration,
    /// Send pings even without active calls.
    #[serde(skip_serializing_if = "is_default")]
    pub permit_without_stream: bool,
}

impl Default for GrpcClientKeepalive {
    fn default() -> GrpcClientKeepalive {
        GrpcClientKeepalive {
            time: Duration::from_secs(10),
            timeout: Duration::from_secs(10),
            permit_without_stream: false,
        }
    }
}

impl GrpcClientSettings {
    /// Whether this is a valid `endpoint`.
    pub fn check_endpoint(endpoint: &str) -> Result<(), EndpointError> {
        GrpcTarget::parse(endpoint).map(drop)
    }
}

impl Config for GrpcClientSettings {
    fn validate(&self, problems: &mut Problems) {
        if self.endpoint.is_empty() {
            let problem = Problem::new("requires a non-empty \"endpoint\"");
            problems.push(problem.key("endpoint"));
        } else if let Err(error) = Self::check_endpoint(&self.endpoint) {
            problems.add("endpoint", error);
        }
        if let Err(error) = self.compression.for_grpc() {
            problems.add("compression", error);
        }
        problems.nested("tls", |problems| self.tls.validate(problems));
        if let Some(keepalive) = &*self.keepalive {
            for (key, duration) in [
                ("keepalive::time", keepalive.time),
                ("keepalive::timeout", keepalive.timeout),
            ] {
                if duration <= Duration::ZERO {
                    problems.add(key, "must be positive");
                }
            }
        }
        if let Err(error) = header_map(&self.headers) {
            problems.add("headers", error);
        }
        if !self.authority.is_empty() && self.authority.parse::<http::uri::Authority>().is_err() {
            problems.add(
                "authority",
                format!("{:?} is not a host name or host:port", self.authority),
            );
        }
    }
}

/// An HTTP client.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct HttpClientSettings {
    /// Base URL of the server, such as `https://host:4318`.
    pub endpoint: Url,
    /// URL of an HTTP proxy; by default taken from HTTP_PROXY, HTTPS_PROXY and NO_PROXY.
    #[serde(skip_serializing_if = "is_default")]
    pub proxy_url: Url,
    /// TLS settings for `https://` URLs.
    #[serde(skip_serializing_if = "is_default")]
    pub tls: ClientTls,
    /// Maximum read buffer per connection, in bytes; 0 means 128 KiB. Allocated only while in use.
    #[serde(skip_serializing_if = "is_default")]
    pub read_buffer_size: usize,
    /// Maximum write buffer per connection, in bytes; 0 means 128 KiB. Allocated only while in use.
    #[serde(skip_serializing_if = "is_default")]
    pub write_buffer_size: usize,
    /// Timeout of a request, including its response; 0 disables it.
    pub timeout: Duration,
    /// Headers to send with every request; they override those set by the component.
    #[serde(skip_serializing_if = "is_default")]
    pub headers: Headers,
    /// Extension that authenticates outgoing requests.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub auth: Option<AuthSettings>,
    /// `gzip`, `zstd`, `snappy`, `x-snappy-framed`, `zlib`, `deflate`, `lz4` or `none`.
    pub compression: Compression,
    #[serde(skip_serializing_if = "is_default")]
    pub compression_params: CompressionParams,
    /// Maximum number of connections; 0 means no limit.
    #[serde(skip_serializing_if = "is_default")]
    pub max_conns_per_host: usize,
    /// Use HTTP/2 if the server offers it (over TLS).
    pub force_attempt_http2: bool,
    /// Interval between HTTP/2 pings; 0 disables them.
    #[serde(skip_serializing_if = "is_default")]
    pub http2_read_idle_timeout: Duration,
    /// Close an HTTP/2 connection if a ping is not answered within this time; 0 means 15s.
    #[serde(skip_serializing_if = "is_default")]
    pub http2_ping_timeout: Duration,
    /// Reuse of idle connections.
    pub keepalive: HttpClientKeepalive,
    /// Deprecated: use `keepalive::idle_conn_timeout`.
    #[serde(skip_serializing)]
    pub idle_conn_timeout: Option<Duration>,
    /// Deprecated: use `keepalive::max_idle_conns`.
    #[serde(skip_serializing)]
    pub max_idle_conns: Option<usize>,
    /// Deprecated: use `keepalive::max_idle_conns_per_host`.
    #[serde(skip_serializing)]
    pub max_idle_conns_per_host: Option<usize>,
    /// Deprecated: the opposite of `keepalive::enabled`.
    #[serde(skip_serializing)]
    pub disable_keep_alives: Option<bool>,
}

impl Default for HttpClientSettings {
    fn default() -> HttpClientSettings {
        HttpClientSettings {
            endpoint: Url::default(),
            proxy_url: Url::default(),
            tls: ClientTls::default(),
            read_buffer_size: 0,
            write_buffer_size: 0,
            timeout: Duration::from_secs(30),
            headers: Headers::default(),
            auth: None,
            compression: Compression::Gzip,
            compression_params: CompressionParams::default(),
            max_conns_per_host: 0,
            force_attempt_http2: true,
            http2_read_idle_timeout: Duration::ZERO,
            http2_ping_timeout: Duration::ZERO,
            keepalive: HttpClientKeepalive::default(),
            idle_conn_timeout: None,
            max_idle_conns: None,
            max_idle_conns_per_host: None,
            disable_keep_alives: None,
        }
    }
}

/// Parameters of the compression.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct CompressionParams {
    /// Compression level; 0 means the default. gzip, zlib and deflate: 1 (fastest) to 9 (smallest),
    /// -1 means 6, -2 the fastest. zstd: 1 to 22, default 3. Other formats have no levels.
    #[serde(skip_serializing_if = "is_default")]
    pub level: Level,
}

/// `keepalive` of an HTTP client.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct HttpClientKeepalive {
    /// Reuse connections for further requests.
    #[serde(skip_serializing_if = "Clone::clone")]
    pub enabled: bool,
    /// Close connections idle for this long; 0 means never.
    pub idle_conn_timeout: Duration,
    /// Maximum number of idle connections; 0 means no limit.
    pub max_idle_conns: usize,
    /// Maximum number of idle connections per host; 0 means `max_idle_conns`.
    #[serde(skip_serializing_if = "is_default")]
    pub max_idle_conns_per_host: usize,
}

impl Default for HttpClientKeepalive {
    fn default() -> HttpClientKeepalive {
        HttpClientKeepalive {
            enabled: true,
            idle_conn_timeout: Duration::from_secs(90),
            max_idle_conns: 100,
            max_idle_conns_per_host: 0,
        }
    }
}

impl HttpClientSettings {
    /// Merges `keepalive` with its deprecated keys; both at once are refused, as in the Collector.
    pub(super) fn resolved_keepalive(&self) -> Result<HttpClientKeepalive, SettingsError> {
        let mut keepalive = self.keepalive.clone();
        let old = self.idle_conn_timeout.is_some()
            || self.max_idle_conns.is_some()
            || self.max_idle_conns_per_host.is_some()
            || self.disable_keep_alives == Some(true);
        if old && keepalive != HttpClientKeepalive::default() {
            return Err(SettingsError::OldKeepaliveKeys {
                old: "`idle_conn_timeout`, `max_idle_conns`, `max_idle_conns_per_host` and `disable_keep_alives`",
            });
        }
        keepalive.idle_conn_timeout = self
            .idle_conn_timeout
            .unwrap_or(keepalive.idle_conn_timeout);
        keepalive.max_idle_conns = self.max_idle_conns.unwrap_or(keepalive.max_idle_conns);
        keepalive.max_idle_conns_per_host = self
            .max_idle_conns_per_host
            .unwrap_or(keepalive.max_idle_conns_per_host);
        keepalive.enabled &= self.disable_keep_alives != Some(true);
        Ok(keepalive)
    }
}

impl Config for HttpClientSettings {
    fn validate(&self, problems: &mut Problems) {
        problems.nested("tls", |problems| self.tls.validate(problems));
        for (key, duration) in [
            ("timeout", self.timeout),
            ("http2_read_idle_timeout", self.http2_read_idle_timeout),
            ("http2_ping_timeout", self.http2_ping_timeout),
            (
                "keepalive::idle_conn_timeout",
                self.keepalive.idle_conn_timeout,
            ),
            (
                "idle_conn_timeout",
                self.idle_conn_timeout.unwrap_or_default(),
            ),
        ] {
            if duration.is_negative() {
                problems.add(key, "must be non-negative");
            }
        }
        if let Err(error) = self.compression.check_level(self.compression_params.level) {
            problems.add("", error);
        }
        if let Err(error) = self.resolved_keepalive() {
            problems.add("keepalive", error);
        }
        if let Err(error) = header_map(&self.headers) {
            problems.add("headers", error);
        }
        if let Err(error) = Proxies::new(&self.proxy_url) {
            problems.add("proxy_url", error);
        }
    }
}
