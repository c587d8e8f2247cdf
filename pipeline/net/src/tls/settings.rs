//! The `tls` settings.

use std::path::PathBuf;

use profcol_config::{Config, Duration, Problems, Secret};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::TlsError;
use super::protocol::{Protocol, TlsVersion};
use crate::settings::is_default;

/// `tls` of a client.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct ClientTls {
    /// Connect without TLS. Ignored if `ca_file` or `ca_pem` is set.
    #[serde(skip_serializing_if = "is_default")]
    pub insecure: bool,
    /// Use TLS without verifying the server's certificate: vulnerable to man-in-the-middle attacks.
    #[serde(skip_serializing_if = "is_default")]
    pub insecure_skip_verify: bool,
    /// Server name for SNI and certificate verification, instead of the endpoint's host.
    #[serde(skip_serializing_if = "is_default")]
    pub server_name_override: String,
    /// File with the CA certificates to trust; by default those of the system.
    #[serde(skip_serializing_if = "is_default")]
    pub ca_file: String,
    /// Like `ca_file`, but inline PEM.
    #[serde(skip_serializing_if = "is_default")]
    pub ca_pem: Secret,
    /// File with the client certificate, for mutual TLS.
    #[serde(skip_serializing_if = "is_default")]
    pub cert_file: String,
    /// Like `cert_file`, but inline PEM.
    #[serde(skip_serializing_if = "is_default")]
    pub cert_pem: Secret,
    /// File with the private key of the certificate.
    #[serde(skip_serializing_if = "is_default")]
    pub key_file: String,
    /// Like `key_file`, but inline PEM.
    #[serde(skip_serializing_if = "is_default")]
    pub key_pem: Secret,
    /// Trust the system's CAs in addition to `ca_file`.
    #[serde(skip_serializing_if = "is_default")]
    pub include_system_ca_certs_pool: bool,
    /// Minimum TLS version: "1.2" or "1.3".
    #[serde(skip_serializing_if = "is_default")]
    pub min_version: TlsVersion,
    /// Maximum TLS version.
    #[serde(skip_serializing_if = "is_default")]
    pub max_version: TlsVersion,
    /// Allowed cipher suites of TLS 1.2, such as TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256; empty
    /// allows all secure ones. Those of TLS 1.3 are not configurable.
    #[serde(skip_serializing_if = "is_default")]
    pub cipher_suites: Vec<String>,
    /// Key exchange groups in order of preference: X25519, P256, P384; empty means all.
    #[serde(skip_serializing_if = "is_default")]
    pub curve_preferences: Vec<String>,
    /// How often to check the files for changes; 0 means never.
    #[serde(skip_serializing_if = "is_default")]
    pub reload_interval: Duration,
}

/// `tls` of a server.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct ServerTls {
    /// File with the server's certificate chain.
    #[serde(skip_serializing_if = "is_default")]
    pub cert_file: String,
    /// Like `cert_file`, but inline PEM.
    #[serde(skip_serializing_if = "is_default")]
    pub cert_pem: Secret,
    /// File with the private key of the certificate.
    #[serde(skip_serializing_if = "is_default")]
    pub key_file: String,
    /// Like `key_file`, but inline PEM.
    #[serde(skip_serializing_if = "is_default")]
    pub key_pem: Secret,
    /// File with the CAs of accepted client certificates. If set, every client must present one (mutual TLS).
    #[serde(skip_serializing_if = "is_default")]
    pub client_ca_file: String,
    /// Reload `client_ca_file` when it changes.
    #[serde(skip_serializing_if = "is_default")]
    pub client_ca_file_reload: bool,
    /// Accept client certificates of the system's CAs in addition to `client_ca_file`.
    #[serde(skip_serializing_if = "is_default")]
    pub include_system_ca_certs_pool: bool,
    /// Minimum TLS version: "1.2" or "1.3".
    #[serde(skip_serializing_if = "is_default")]
    pub min_version: TlsVersion,
    /// Maximum TLS version.
    #[serde(skip_serializing_if = "is_default")]
    pub max_version: TlsVersion,
    /// Allowed cipher suites of TLS 1.2, such as TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256; empty
    /// allows all secure ones. Those of TLS 1.3 are not configurable.
    #[serde(skip_serializing_if = "is_default")]
    pub cipher_suites: Vec<String>,
    /// Key exchange groups in order of preference: X25519, P256, P384; empty means all.
    #[serde(skip_serializing_if = "is_default")]
    pub curve_preferences: Vec<String>,
    /// How often to check the certificate and key files for changes; 0 means never.
    #[serde(skip_serializing_if = "is_default")]
    pub reload_interval: Duration,
}

/// The source of a PEM text.
#[derive(Clone, Debug)]
pub(super) struct Source {
    pub key: &'static str,
    pub location: PemLocation,
}

#[derive(Clone, Debug)]
pub(super) enum PemLocation {
    File(String),
    Inline(Secret),
}

impl Source {
    /// Chooses between a pair of settings like `ca_file` and `ca_pem`.
    pub fn one_of(
        keys: (&'static str, &'static str),
        file: &str,
        pem: &Secret,
    ) -> Result<Option<Source>, TlsError> {
        match (file.is_empty(), pem.is_empty()) {
            (true, true) => Ok(None),
            (false, true) => Ok(Some(Source {
                key: keys.0,
                location: PemLocation::File(file.to_owned()),
            })),
            (true, false) => Ok(Some(Source {
                key: keys.1,
                location: PemLocation::Inline(pem.clone()),
            })),
            (false, false) => {
                let (file, pem) = keys;
                Err(TlsError::Settings(format!(
                    "`{file}` and `{pem}` are both set; keep one of them"
                )))
            }
        }
    }

    /// The file to watch, if any.
    pub fn path(&self) -> Option<PathBuf> {
        match &self.location {
            PemLocation::File(path) => Some(PathBuf::from(path)),
            PemLocation::Inline(_) => None,
        }
    }

    pub fn name(&self) -> String {
        match &self.location {
            PemLocation::File(path) => format!("`{path}`"),
            PemLocation::Inline(_) => format!("`{}`", self.key),
        }
    }
}

/// A certificate and its key.
#[derive(Clone, Debug)]
pub(super) struct Pair {
    pub cert: Source,
    pub key: Source,
}

impl Pair {
    fn new(cert: Option<Source>, key: Option<Source>) -> Result<Option<Pair>, TlsError> {
        let lacks = |what: &str| {
            let message = "TLS configuration must include both certificate and key";
            Err(TlsError::Settings(format!(
                "{message}: set `{what}_file` or `{what}_pem` too"
            )))
        };
        match (cert, key) {
            (None, None) => Ok(None),
            (Some(cert), Some(key)) => Ok(Some(Pair { cert, key })),
            (Some(_), None) => lacks("key"),
            (None, Some(_)) => lacks("cert"),
        }
    }
}

impl ClientTls {
    pub(super) fn pair(&self) -> Result<Option<Pair>, TlsError> {
        Pair::new(
            Source::one_of(("cert_file", "cert_pem"), &self.cert_file, &self.cert_pem)?,
            Source::one_of(("key_file", "key_pem"), &self.key_file, &self.key_pem)?,
        )
    }

    pub(super) fn ca(&self) -> Result<Option<Source>, TlsError> {
        Source::one_of(("ca_file", "ca_pem"), &self.ca_file, &self.ca_pem)
    }

    pub(super) fn protocol(&self) -> Protocol<'_> {
        Protocol {
            min: self.min_version,
            max: self.max_version,
            cipher_suites: &self.cipher_suites,
            curves: &self.curve_preferences,
        }
    }
}

impl ServerTls {
    pub(super) fn pair(&self) -> Result<Pair, TlsError> {
        let pair = Pair::new(
            Source::one_of(("cert_file", "cert_pem"), &self.cert_file, &self.cert_pem)?,
            Source::one_of(("key_file", "key_pem"), &self.key_file, &self.key_pem)?,
        )?;
        let message =
            "TLS configuration must include both certificate and key for server connections";
        pair.ok_or_else(|| TlsError::Settings(message.to_owned()))
    }

    pub(super) fn client_ca(&self) -> Option<Source> {
        let location = PemLocation::File(self.client_ca_file.clone());
        (!self.client_ca_file.is_empty()).then_some(Source {
            key: "client_ca_file",
            location,
        })
    }

    pub(super) fn protocol(&self) -> Protocol<'_> {
        Protocol {
            min: self.min_version,
            max: self.max_version,
            cipher_suites: &self.cipher_suites,
            curves: &self.curve_preferences,
        }
    }
}

impl Config for ClientTls {
    fn validate(&self, problems: &mut Problems) {
        check(self.ca(), problems);
        check(self.pair(), problems);
        check_protocol(&self.protocol(), problems);
        check_reload_interval(self.reload_interval, problems);
    }
}

impl Config for ServerTls {
    fn validate(&self, problems: &mut Problems) {
        check(self.pair(), problems);
        if self.client_ca_file_reload && self.client_ca_file.is_empty() {
            problems.add("client_ca_file_reload", "requires `client_ca_file`");
        }
        check_protocol(&self.protocol(), problems);
        check_reload_interval(self.reload_interval, problems);
    }
}

fn check_protocol(protocol: &Protocol<'_>, problems: &mut Problems) {
    check(protocol.versions(), problems);
    check(protocol.provider(), problems);
}

fn check_reload_interval(interval: Duration, problems: &mut Problems) {
    if interval.is_negative() {
        problems.add("reload_interval", "must be non-negative");
    }
}

fn check<T>(outcome: Result<T, TlsError>, problems: &mut Problems) {
    if let Err(error) = outcome {
        problems.add("", error.to_string());
    }
}
