//! The options of `bearertokenauth`: the Collector's.

use http::{HeaderName, HeaderValue};
use profcol_config::{Config, Problems, Secret};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Requires a token in each request, or sends one.
#[derive(Clone, Debug, Deserialize, JsonSchema, Serialize)]
#[serde(default)]
pub struct BearerTokenAuthConfig {
    /// The header with the token.
    pub header: String,
    /// The scheme before the token; empty for none.
    pub scheme: String,
    /// The token.
    #[serde(skip_serializing_if = "Secret::is_empty")]
    pub token: Secret,
    /// Several tokens: any of them is accepted, the first is sent.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tokens: Vec<Secret>,
    /// A file with one token per line; reloaded when it changes. Overrides `token` and
    /// `tokens`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub filename: String,
}

impl Default for BearerTokenAuthConfig {
    fn default() -> Self {
        Self {
            header: "Authorization".to_owned(),
            scheme: "Bearer".to_owned(),
            token: Secret::default(),
            tokens: Vec::new(),
            filename: String::new(),
        }
    }
}

impl Config for BearerTokenAuthConfig {
    fn validate(&self, problems: &mut Problems) {
        if self.token.is_empty() && self.tokens.is_empty() && self.filename.is_empty() {
            problems.add("", "no bearer token provided");
        }
        if !self.token.is_empty() && !self.tokens.is_empty() {
            problems.add("", "either tokens or token should be provided, not both");
        }
        if HeaderName::try_from(&self.header).is_err() {
            let message = format!("{:?} is not a valid header name", self.header);
            problems.add("header", message);
        }
        if HeaderValue::from_str(&self.scheme).is_err() {
            problems.add("scheme", "contains characters that are invalid in headers");
        }
        for (key, token) in self.named_tokens() {
            if let Err(reason) = check_token(token.expose()) {
                problems.add(&key, reason);
            }
        }
    }
}

impl BearerTokenAuthConfig {
    fn named_tokens(&self) -> impl Iterator<Item = (String, &Secret)> {
        let one = (!self.token.is_empty()).then(|| ("token".to_owned(), &self.token));
        let several = self.tokens.iter().enumerate();
        one.into_iter()
            .chain(several.map(|(position, token)| (format!("tokens::{position}"), token)))
    }
}

pub(super) fn check_token(token: &str) -> Result<(), &'static str> {
    if token.is_empty() {
        return Err("an empty token would accept every client");
    }
    match HeaderValue::from_str(token) {
        Ok(_) => Ok(()),
        Err(_) => Err("the token contains characters that are invalid in headers"),
    }
}
