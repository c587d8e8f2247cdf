//! TLS versions and algorithms.

use std::sync::Arc;

use rustls::SupportedProtocolVersion;
use rustls::crypto::{CryptoProvider, ring};
use rustls::version::{TLS12, TLS13};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::TlsError;

/// A TLS version; by default 1.2 as minimum, 1.3 as maximum.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(extend("x-unknown" = "unsupported TLS version:"))]
pub enum TlsVersion {
    #[default]
    #[serde(rename = "")]
    Unset,
    #[serde(rename = "1.2")]
    V1_2,
    #[serde(rename = "1.3")]
    V1_3,
}

/// Settings common to clients and servers.
#[derive(Clone, Debug)]
pub(super) struct Protocol<'a> {
    pub min: TlsVersion,
    pub max: TlsVersion,
    pub cipher_suites: &'a [String],
    pub curves: &'a [String],
}

impl Protocol<'_> {
    /// The crypto provider with the configured algorithms.
    pub fn provider(&self) -> Result<Arc<CryptoProvider>, TlsError> {
        let mut provider = ring::default_provider();
        if !self.cipher_suites.is_empty() {
            let mut chosen = Vec::new();
            for name in self.cipher_suites {
                let suite = provider.cipher_suites.iter().find(|suite| {
                    format!("{:?}", suite.suite()).replace("TLS13_", "TLS_") == *name
                });
                let message = || TlsError::Settings(format!("invalid TLS cipher suite: {name:?}"));
                chosen.push(*suite.ok_or_else(message)?);
            }
            provider
                .cipher_suites
                .retain(|suite| suite.tls13().is_some() || chosen.contains(suite));
        }
        if !self.curves.is_empty() {
            let mut chosen = Vec::new();
            for name in self.curves {
                let group = provider.kx_groups.iter().find(|group| {
                    format!("{:?}", group.name())
                        .replace("secp", "P")
                        .replace("r1", "")
                        == *name
                });
                let message = || {
                    TlsError::Settings(format!(
                        "invalid curve type: {name}. Expected values are X25519, P256, P384"
                    ))
                };
                chosen.push(*group.ok_or_else(message)?);
            }
            provider.kx_groups = chosen;
        }
        Ok(Arc::new(provider))
    }

    pub fn versions(&self) -> Result<Vec<&'static SupportedProtocolVersion>, TlsError> {
        match (self.min, self.max) {
            (TlsVersion::V1_3, TlsVersion::V1_2) => Err(TlsError::Settings(
                "invalid TLS configuration: min_version cannot be greater than max_version"
                    .to_owned(),
            )),
            (TlsVersion::V1_3, _) => Ok(vec![&TLS13]),
            (_, TlsVersion::V1_2) => Ok(vec![&TLS12]),
            (_, _) => Ok(vec![&TLS13, &TLS12]),
        }
    }
}
