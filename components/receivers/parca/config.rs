//! The options of `parca`.

use profcol_config::{Config, Present, Problems};
use profcol_net::{GrpcClientSettings, GrpcServerSettings};
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize};

/// Receives profiles and debuginfo from Parca Agents, like a Parca server.
#[derive(Clone, Debug, Deserialize, JsonSchema, Serialize)]
#[serde(default)]
pub struct ParcaConfig {
    #[serde(flatten, deserialize_with = "server")]
    pub server: GrpcServerSettings,
    /// How long a client may take to send all messages of a call.
    pub write_timeout: profcol_config::Duration,
    /// The server that the agents' debuginfo is forwarded to. Without this section, agents are told that no debuginfo is
    /// needed.
    pub debuginfo_upstream: Present<GrpcClientSettings>,
    /// How long a debuginfo upload may make no progress before it is cancelled.
    pub debuginfo_idle_timeout: profcol_config::Duration,
}

/// Parca's default.
const ENDPOINT: &str = "localhost:7070";

impl Default for ParcaConfig {
    fn default() -> Self {
        Self {
            server: GrpcServerSettings {
                endpoint: ENDPOINT.to_owned(),
                ..GrpcServerSettings::default()
            },
            write_timeout: std::time::Duration::from_secs(5).into(),
            debuginfo_upstream: Present(None),
            debuginfo_idle_timeout: std::time::Duration::from_secs(60).into(),
        }
    }
}

/// Server settings with Parca's default endpoint.
fn server<'de, D: Deserializer<'de>>(deserializer: D) -> Result<GrpcServerSettings, D::Error> {
    let mut settings = serde_json::Map::deserialize(deserializer)?;
    settings
        .entry("endpoint")
        .or_insert_with(|| ENDPOINT.into());
    serde_json::from_value(settings.into()).map_err(serde::de::Error::custom)
}

impl Config for ParcaConfig {
    fn validate(&self, problems: &mut Problems) {
        self.server.validate(problems);
        if self.debuginfo_idle_timeout <= profcol_config::Duration::ZERO {
            problems.add("debuginfo_idle_timeout", "must be positive");
        }
        if let Some(upstream) = &*self.debuginfo_upstream {
            problems.nested("debuginfo_upstream", |problems| upstream.validate(problems));
        }
    }
}
