//! The options of `basicauth`, as the Collector has them.

use profcol_config::{Config, Present, Problems, Secret};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::htpasswd::Htpasswd;

/// Asks for a user and a password in each request, or sends them.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, Serialize)]
#[serde(default)]
pub struct BasicAuthConfig {
    /// For receivers: who may send.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub htpasswd: Present<HtpasswdSettings>,
    /// For exporters: who we are.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_auth: Present<ClientAuthSettings>,
}

/// Who may send: lines of `user:hash`, as the `htpasswd` program writes them. A hash is bcrypt
/// (`htpasswd -B`), `{SHA}` or `{SSHA}`; anything else is the password itself.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, Serialize)]
#[serde(default)]
pub struct HtpasswdSettings {
    /// A file with such lines, read again when it has changed.
    pub file: String,
    /// The lines themselves; of a user that stands in both, these count.
    pub inline: Secret,
}

/// Who we are.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, Serialize)]
#[serde(default)]
pub struct ClientAuthSettings {
    pub username: String,
    /// A file with the name, read again when it has changed; used instead of `username`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub username_file: String,
    pub password: Secret,
    /// A file with the password, read again when it has changed; used instead of `password`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub password_file: String,
}

impl Config for BasicAuthConfig {
    fn validate(&self, problems: &mut Problems) {
        match (&*self.htpasswd, &*self.client_auth) {
            (None, None) => problems.add("", "no credential source provided"),
            (Some(_), Some(_)) => problems.add(
                "",
                "only one of `htpasswd` or `client_auth` can be specified",
            ),
            (Some(htpasswd), None) => problems.nested("htpasswd", |p| htpasswd.validate(p)),
            (None, Some(client)) => problems.nested("client_auth", |p| client.validate(p)),
        }
    }
}

impl HtpasswdSettings {
    fn validate(&self, problems: &mut Problems) {
        if self.file.is_empty() && self.inline.is_empty() {
            problems.add("", "no credential source provided");
        }
        if let Err(reason) = Htpasswd::parse(self.inline.expose()) {
            problems.add("inline", reason);
        }
    }
}

impl ClientAuthSettings {
    fn validate(&self, problems: &mut Problems) {
        if self.username.is_empty() && self.username_file.is_empty() {
            problems.add("username", "must not be empty");
        }
        if self.username.contains(':') {
            problems.add(
                "username",
                "invalid authorization format: must not hold `:`",
            );
        }
    }
}
