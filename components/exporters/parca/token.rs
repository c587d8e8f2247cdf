//! The token in the exporter's own configuration.

use std::io;

use async_trait::async_trait;
use http::header::AUTHORIZATION;
use http::{HeaderName, HeaderValue};
use profcol_config::Secret;
use profcol_net::auth::{ClientAuth, ClientAuthError};

#[derive(Debug)]
pub enum Token {
    Known(Secret),
    /// Read for each call, so that a new token is used at once.
    File(String),
}

#[derive(Debug, thiserror::Error)]
#[error("bearer_token_file {path}: {error}")]
struct Unreadable {
    path: String,
    #[source]
    error: io::Error,
}

#[async_trait]
impl ClientAuth for Token {
    async fn headers(&self) -> Result<Vec<(HeaderName, HeaderValue)>, ClientAuthError> {
        let token = match self {
            Self::Known(token) => token.expose().to_owned(),
            Self::File(path) => tokio::fs::read_to_string(path).await.map_err(|error| {
                ClientAuthError::new(Unreadable {
                    path: path.clone(),
                    error,
                })
            })?,
        };
        let mut value = HeaderValue::from_str(&format!("Bearer {}", token.trim()))
            .map_err(|_| ClientAuthError::new("the token is not a valid header value"))?;
        value.set_sensitive(true);
        Ok(vec![(AUTHORIZATION, value)])
    }
}
