//! The options of `parca`.

use profcol_component::DeliverySettings;
use profcol_config::{Config, Problems, Secret};
use profcol_net::GrpcClientSettings;
use profcol_parca::LabelRules;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::debuginfo::DebuginfoConfig;
use crate::shared::parca::LabelSettings;

/// Sends profiles to a Parca server, as Parca Agent does.
#[derive(Clone, Debug, Deserialize, JsonSchema, Serialize)]
#[serde(default)]
pub struct ParcaConfig {
    #[serde(flatten)]
    pub client: GrpcClientSettings,
    #[serde(flatten)]
    pub delivery: DeliverySettings,
    /// Sent as `authorization: Bearer`.
    #[serde(skip_serializing_if = "Secret::is_empty")]
    pub bearer_token: Secret,
    /// A file with the token, read for each call. It wins over `bearer_token`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub bearer_token_file: String,
    /// How profiles are written: `v1` (samples, and of the stacks those that the server asks for),
    /// `v2` (one message), `pprof` (a file for each set of labels), or `auto`: the first of these
    /// that the server knows.
    pub schema: SchemaChoice,
    #[serde(flatten)]
    pub labels: LabelSettings,
    /// Of the executables that samples met, for the server to name their code.
    pub debuginfo: DebuginfoConfig,
    /// The largest message that the server takes, in MiB, before compression; what would need a
    /// larger one is sent in pieces.
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

/// A server takes 64.
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
            problems.add("bearer_token", "there is `auth` too: one of them has to go");
        }
        self.labels.validate(problems);
    }
}

impl ParcaConfig {
    pub fn label_rules(&self) -> LabelRules {
        self.labels.rules()
    }
}
