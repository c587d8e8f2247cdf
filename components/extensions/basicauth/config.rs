//! The options of `basicauth`: the Collector's.

use profcol_config::{Config, Present, Problems, Secret};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::htpasswd::Htpasswd;

/// Requires a user and password in each request, or sends them.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, Serialize)]
#[serde(default)]
pub struct BasicAuthConfig {
    /// For receivers: the accepted users.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub htpasswd: Present<HtpasswdSettings>,
    /// For exporters: the credentials to send.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_auth: Present<ClientAuthSettings>,
}

/// The accepted users: lines of `user:hash`, as written by the `htpasswd` program. A hash is bcrypt
/// (`htpasswd -B`), `{SHA}` or `{SSHA}`; anything else is the plain password.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, Serialize)]
#[serde(default)]
pub struct HtpasswdSettings {
    /// A file with `user:hash` lines; reloaded when it changes.
    pub file: String,
    /// The lines themselves; they take precedence over the file.
    pub inline: Secret,
}

/// The credentials to send.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, Serialize)]
#[serde(default)]
pub struct ClientAuthSettings {
    /// The user to log in as.
    pub username: String,
    /// A file with the username; reloaded when it changes. Overrides `username`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub username_file: String,
    /// The user's password.
    pub password: Secret,
    /// A file with the password; reloaded when it changes. Overrides `password`.
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
                "invalid authorization format: must not contain `:`",
            );
        }
    }
}
