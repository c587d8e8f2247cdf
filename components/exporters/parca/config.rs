//! The options of `parca`.

use profcol_component::DeliverySettings;
use profcol_config::{Config, Problems, Secret};
use profcol_net::GrpcClientSettings;
use profcol_parca::LabelRules;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::debuginfo::DebuginfoConfig;
use crate::shared::parca::LabelSettings;

/// Sends profiles to a Parca server, like Parca Agent.
#[derive(Clone, Debug, Deserialize, JsonSchema, Serialize)]
#[serde(default)]
pub struct ParcaConfig {
    #[serde(flatten)]
    pub client: GrpcClientSettings,
    #[serde(flatten)]
    pub delivery: DeliverySettings,
    /// Bearer token sent in the `authorization` header.
    #[serde(skip_serializing_if = "Secret::is_empty")]
    pub bearer_token: Secret,
    /// File with the bearer token, read for each call. Overrides `bearer_token`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub bearer_token_file: String,
    /// Wire format: `v1` (samples, then the stacks that the server requests), `v2` (one message),
    /// `pprof` (a profile per label set), or `auto`: the first of these that the server supports.
    pub schema: SchemaChoice,
    #[serde(flatten)]
    pub labels: LabelSettings,
    /// Upload of debuginfo, so that the server can symbolize native code.
    pub debuginfo: DebuginfoConfig,
    /// Maximum message size, in MiB, before compression; larger batches are split.
    pub max_request_size_mib: u32,
}

#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum SchemaChoice {
    #[default]
    Auto,
    V1,
    V2,
    Pprof,
}

/// The server's limit is 64.
const MAX_REQUEST_SIZE_MIB: u32 = 32;

impl Default for ParcaConfig {
    fn default() -> Self {
        Self {
            client: GrpcClientSettings::default(),
            delivery: DeliverySettings::default(),
            bearer_token: Secret::default(),
            bearer_token_file: String::new(),
            schema: SchemaChoice::Auto,
            labels: LabelSettings::default(),
            debuginfo: DebuginfoConfig::default(),
            max_request_size_mib: MAX_REQUEST_SIZE_MIB,
        }
    }
}

impl Config for ParcaConfig {
    fn validate(&self, problems: &mut Problems) {
        self.client.validate(problems);
        self.delivery.validate(problems);
        problems.nested("debuginfo", |problems| self.debuginfo.validate(problems));
        let has_token = !self.bearer_token.is_empty() || !self.bearer_token_file.is_empty();
        if has_token && self.client.auth.is_some() {
            problems.add(
                "bearer_token",
                "cannot be combined with `auth`; remove one of them",
            );
        }
        self.labels.validate(problems);
    }
}

impl ParcaConfig {
    pub fn label_rules(&self) -> LabelRules {
        self.labels.rules()
    }
}
