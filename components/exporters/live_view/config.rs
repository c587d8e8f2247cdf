//! The options of `live_view`.

use std::path::PathBuf;

use profcol_config::{Config, Duration, Present, Problems};
use profcol_history::ArchiveOptions;
use profcol_net::tls::ServerTls;
use profcol_net::{AuthSettings, HttpServerSettings, Transport, is_loopback};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Keeps recent profiles in memory, optionally older ones on disk, and serves a page that shows them.
#[derive(Clone, Debug, Deserialize, JsonSchema, Serialize)]
#[serde(default)]
pub struct LiveViewConfig {
    /// Serve the page. `false` is for embedding programs that read the profiles themselves, like `profcol top`.
    pub page: bool,
    /// Address of the page: `host:port`. If the default port is in use, another one is taken.
    pub endpoint: String,
    /// TLS settings; without this section connections are not encrypted.
    pub tls: Present<ServerTls>,
    /// Extension that authenticates requests. Without it, the page must be on a loopback address.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub auth: Option<AuthSettings>,
    /// Names under which browsers may reach the page, besides `localhost`, IP addresses and the host of
    /// `endpoint`; others are refused, which protects from DNS rebinding.
    pub allowed_hosts: Vec<String>,
    /// How long profiles are kept in memory.
    pub max_age: Duration,
    /// Maximum memory for profiles, in MiB; beyond it the oldest are removed.
    pub max_memory_mib: usize,
    /// Directory that keeps profiles beyond `max_age` and restarts, exclusive to one process; created if missing.
    /// Empty keeps them in memory only.
    pub directory: String,
    /// Maximum size on disk, in MiB; beyond it the oldest sixteenth is removed.
    pub max_disk_mib: u64,
    /// How often profiles are written to `directory`: at most this and ten seconds more are lost if profcol is killed.
    pub flush_interval: Duration,
    /// Resolution of the timeline: samples of this interval are added up.
    pub resolution: Duration,
    /// Sample attributes kept as labels; resource attributes are always kept.
    pub sample_labels: Vec<String>,
}

pub(super) const DEFAULT_ENDPOINT: &str = "127.0.0.1:7071";
/// Enough for several users with several tabs.
const MAX_CONNECTIONS: usize = 64;
/// Queries are in the URL or a small message.
const MAX_BODY: usize = 64 << 10;

impl Default for LiveViewConfig {
    fn default() -> Self {
        Self {
            page: true,
            endpoint: DEFAULT_ENDPOINT.to_owned(),
            tls: Present::default(),
            auth: None,
            allowed_hosts: Vec::new(),
            max_age: Duration::from_secs(3600),
            max_memory_mib: 30,
            directory: String::new(),
            max_disk_mib: 1024,
            flush_interval: Duration::from_secs(30),
            resolution: Duration::from_secs(5),
            sample_labels: vec!["thread.name".to_owned()],
        }
    }
}

impl Config for LiveViewConfig {
    fn validate(&self, problems: &mut Problems) {
        self.server().validate(problems);
        if self.auth.is_none() && !is_loopback(&self.endpoint) {
            problems.add(
                "endpoint",
                "profiles must not be public: listen on a loopback address such as 127.0.0.1:7071, or set `auth`",
            );
        }
        let resolution = std::time::Duration::from(self.resolution);
        if resolution < std::time::Duration::from_secs(1) {
            problems.add("resolution", "must be at least 1s");
        }
        if std::time::Duration::from(self.max_age) < resolution {
            problems.add("max_age", "must not be shorter than `resolution`");
        }
        if self.max_memory_mib == 0 {
            problems.add("max_memory_mib", "must be positive");
        }
        if self.max_disk_mib == 0 {
            problems.add("max_disk_mib", "must be positive");
        }
        if std::time::Duration::from(self.flush_interval).is_zero() {
            problems.add("flush_interval", "must be positive");
        }
    }
}

impl LiveViewConfig {
    /// Where profiles are kept on disk, if they are.
    pub(super) fn archive(&self) -> Option<ArchiveOptions> {
        (!self.directory.is_empty()).then(|| ArchiveOptions {
            directory: PathBuf::from(&self.directory),
            max_bytes: self.max_disk_mib.saturating_mul(1 << 20),
            flush_interval: self.flush_interval.into(),
        })
    }

    pub(super) fn server(&self) -> HttpServerSettings {
        HttpServerSettings {
            endpoint: self.endpoint.clone(),
            transport: Transport::Tcp,
            tls: self.tls.clone(),
            auth: self.auth.clone(),
            max_request_body_size: MAX_BODY,
            max_connections: MAX_CONNECTIONS,
            ..HttpServerSettings::default()
        }
    }
}
