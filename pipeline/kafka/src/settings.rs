//! The settings of a connection, with the Collector's keys.

use std::time::Duration as StdDuration;

use krafka::auth::{AuthConfig, TlsConfig};
use krafka::{Kafka, KafkaBuilder};
use profcol_config::{Config, Duration, Present, Problems, Secret};
use profcol_net::tls::ClientTls;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Error;

/// The connection to a Kafka cluster.
#[derive(Clone, Debug, Deserialize, JsonSchema, Serialize)]
#[serde(default)]
pub struct ClientSettings {
    /// Brokers to ask first, as `host:port`; they name the others.
    pub brokers: Vec<String>,
    /// Name of this client in the brokers' logs, metrics and quotas.
    pub client_id: String,
    /// Timeout of connecting to a broker.
    pub dial_timeout: Duration,
    /// Close connections idle for this long.
    pub conn_idle_timeout: Duration,
    /// What the client knows about brokers, topics and partitions.
    pub metadata: MetadataSettings,
    /// TLS settings; without this section, connections are not encrypted.
    pub tls: Present<ClientTls>,
    /// Authentication.
    pub auth: Auth,
}

/// What the client knows about brokers, topics and partitions.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(default)]
#[schemars(extend("x-refused" = {
    "full": "profcol requests only the topics in use; remove it",
    "retry": "metadata is requested again until it is available; remove it",
}))]
pub struct MetadataSettings {
    /// How often to ask the brokers for it.
    pub refresh_interval: Duration,
}

/// Authentication.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, Serialize)]
#[serde(default)]
#[schemars(extend("x-refused" = {
    "kerberos": "Kerberos is not supported; use `sasl`, or a client certificate in `tls`",
    "plain_text": "use `sasl` with `mechanism: PLAIN`",
    "tls": "set `tls` next to `auth`",
}))]
pub struct Auth {
    /// SASL.
    pub sasl: Present<SaslSettings>,
}

/// SASL.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, Serialize)]
#[serde(default)]
#[schemars(extend("x-refused" = {
    "aws_msk": "IAM of Amazon MSK is not supported; use SCRAM, or a client certificate in `tls`",
    "oauthbearer_token_source": "OAUTHBEARER is not supported; use SCRAM, or a client certificate in `tls`",
    "version": "the version is negotiated with the broker; remove it",
}))]
pub struct SaslSettings {
    /// The user to log in as.
    pub username: String,
    /// The user's password.
    pub password: Secret,
    /// `PLAIN`, `SCRAM-SHA-256` or `SCRAM-SHA-512`. `PLAIN` sends the password, so use it with `tls` only.
    pub mechanism: Mechanism,
}

#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[schemars(extend("x-unknown" = "unsupported mechanism"))]
pub enum Mechanism {
    #[default]
    #[serde(rename = "PLAIN")]
    Plain,
    #[serde(rename = "SCRAM-SHA-256")]
    ScramSha256,
    #[serde(rename = "SCRAM-SHA-512")]
    ScramSha512,
}

impl ClientSettings {
    pub fn validate(&self, problems: &mut Problems) {
        if self.brokers.is_empty() || self.brokers.iter().any(|broker| broker.trim().is_empty()) {
            problems.add("brokers", "must name at least one broker, as `host:port`");
        }
        for (key, duration) in [
            ("dial_timeout", self.dial_timeout),
            ("conn_idle_timeout", self.conn_idle_timeout),
            ("metadata::refresh_interval", self.metadata.refresh_interval),
        ] {
            if duration.is_negative() || duration.is_zero() {
                problems.add(key, "must be positive");
            }
        }
        if let Some(tls) = &*self.tls {
            problems.nested("tls", |problems| validate_tls(tls, problems));
        }
        if let Some(sasl) = &*self.auth.sasl {
            if sasl.username.is_empty() {
                problems.add("auth::sasl::username", "must be set");
            }
            if sasl.password.is_empty() {
                problems.add("auth::sasl::password", "must be set");
            }
        }
    }

    /// Whether the password can be read on the way.
    pub fn exposes_password(&self) -> bool {
        let is_plain = |sasl: &SaslSettings| sasl.mechanism == Mechanism::Plain;
        self.auth.sasl.as_ref().is_some_and(is_plain) && !self.tls.as_ref().is_some_and(uses_tls)
    }

    /// The names of the first brokers, for messages.
    pub fn addresses(&self) -> String {
        self.brokers.join(", ")
    }

    /// Connects and asks the brokers about the cluster. A request may take `request_timeout`.
    pub async fn connect(
        &self,
        request_timeout: StdDuration,
        configure: impl FnOnce(KafkaBuilder) -> KafkaBuilder,
    ) -> Result<Kafka, Error> {
        let builder = Kafka::builder(self.brokers.join(","))
            .client_id(&self.client_id)
            .request_timeout(request_timeout)
            // It is a part of a request.
            .connect_timeout(self.dial_timeout.to_std().min(request_timeout))
            .connections_max_idle(Some(self.conn_idle_timeout.to_std()))
            .metadata_max_age(self.metadata.refresh_interval.to_std())
            .security(self.security());
        let builder = match &*self.tls {
            Some(tls) if !tls.reload_interval.is_zero() => {
                builder.tls_reload_interval(Some(tls.reload_interval.to_std()))
            }
            _ => builder,
        };
        configure(builder).connect().await.map_err(Error::from)
    }

    fn security(&self) -> AuthConfig {
        let auth = match &*self.auth.sasl {
            None => AuthConfig::plaintext(),
            Some(sasl) => {
                let (name, password) = (sasl.username.as_str(), sasl.password.expose());
                match sasl.mechanism {
                    Mechanism::Plain => AuthConfig::sasl_plain(name, password),
                    Mechanism::ScramSha256 => AuthConfig::sasl_scram_sha256(name, password),
                    Mechanism::ScramSha512 => AuthConfig::sasl_scram_sha512(name, password),
                }
            }
        };
        match &*self.tls {
            Some(tls) if uses_tls(tls) => auth.with_tls(tls_config(tls)),
            _ => auth,
        }
    }
}

fn uses_tls(tls: &ClientTls) -> bool {
    !tls.insecure || !tls.ca_file.is_empty() || !tls.ca_pem.is_empty()
}

fn validate_tls(tls: &ClientTls, problems: &mut Problems) {
    tls.validate(problems);
    let default = ClientTls::default();
    for (key, is_set) in [
        ("min_version", tls.min_version != default.min_version),
        ("max_version", tls.max_version != default.max_version),
        ("cipher_suites", !tls.cipher_suites.is_empty()),
        ("curve_preferences", !tls.curve_preferences.is_empty()),
    ] {
        if is_set {
            problems.add(
                key,
                "is not supported for Kafka: TLS 1.2 and 1.3 are in use with all their secure algorithms; remove it",
            );
        }
    }
    if tls.cert_file.is_empty() != tls.key_file.is_empty()
        && tls.cert_pem.is_empty() != tls.key_pem.is_empty()
    {
        problems.add(
            "cert_file",
            "certificate and key must both be files, or both be inline",
        );
    }
}

fn tls_config(tls: &ClientTls) -> TlsConfig {
    let mut config = match tls.insecure_skip_verify {
        true => TlsConfig::insecure(),
        false => TlsConfig::new(),
    };
    let has_own_ca = !tls.ca_file.is_empty() || !tls.ca_pem.is_empty();
    if !tls.ca_file.is_empty() {
        config = config.with_ca_cert(&tls.ca_file);
    }
    if !tls.ca_pem.is_empty() {
        config = config.with_ca_cert_pem(tls.ca_pem.expose());
    }
    if !has_own_ca || tls.include_system_ca_certs_pool {
        config = config.with_native_roots();
    }
    if !tls.cert_file.is_empty() {
        config = config.with_client_cert(&tls.cert_file, &tls.key_file);
    }
    if !tls.cert_pem.is_empty() {
        let key = tls.key_pem.expose().as_bytes().to_vec();
        config = config.with_client_cert_pem(tls.cert_pem.expose(), key);
    }
    if !tls.server_name_override.is_empty() {
        config = config.with_sni_hostname(&tls.server_name_override);
    }
    config
}

impl Default for ClientSettings {
    fn default() -> Self {
        Self {
            brokers: vec!["localhost:9092".to_owned()],
            client_id: "profcol".to_owned(),
            dial_timeout: Duration::from_secs(10),
            conn_idle_timeout: Duration::from_secs(9 * 60),
            metadata: MetadataSettings::default(),
            tls: Present(None),
            auth: Auth::default(),
        }
    }
}

impl Default for MetadataSettings {
    fn default() -> Self {
        Self {
            refresh_interval: Duration::from_secs(10 * 60),
        }
    }
}
