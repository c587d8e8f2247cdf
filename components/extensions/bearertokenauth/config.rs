//! The options of `bearertokenauth`, as the Collector has them.

use http::{HeaderName, HeaderValue};
use profcol_config::{Config, Problems, Secret};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Asks for a token in each request, or sends one.
#[derive(Clone, Debug, Deserialize, JsonSchema, Serialize)]
#[serde(default)]
pub struct BearerTokenAuthConfig {
    /// The header that holds the token.
    pub header: String,
    /// The word before the token; empty for none.
    pub scheme: String,
    /// The token.
    #[serde(skip_serializing_if = "Secret::is_empty")]
    pub token: Secret,
    /// Several tokens instead: any of them is accepted, the first is sent.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tokens: Vec<Secret>,
    /// A file with a token in each line, read again when it has changed. With it `token` and
    /// `tokens` are not used.
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
            problems.add("scheme", "holds characters that headers cannot carry");
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
        return Err("an empty token would let everybody in");
    }
    match HeaderValue::from_str(token) {
        Ok(_) => Ok(()),
        Err(_) => Err("the token holds characters that headers cannot carry"),
    }
}
