//! Server and client authentication, implemented by extensions.

use std::any::Any;
use std::error::Error;
use std::sync::Arc;

use async_trait::async_trait;
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use http::{HeaderMap, HeaderName, HeaderValue};

use crate::grpc::Status;

/// Authenticates each incoming request before its body is read.
#[async_trait]
pub trait ServerAuth: Send + Sync + std::fmt::Debug {
    /// A refusal is usually [`Code::Unauthenticated`](crate::grpc::Code::Unauthenticated); over
    /// HTTP it becomes the matching status.
    async fn authenticate(&self, headers: &HeaderMap) -> Result<AuthData, Status>;

    /// Named to HTTP clients that are refused. `None` if the credentials are not in `Authorization`.
    fn scheme(&self) -> Option<Scheme>;
}

/// An HTTP authentication scheme.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Scheme {
    /// User and password; browsers ask for them.
    Basic,
    /// A token after this word, such as `Bearer`.
    Token(String),
}

impl Scheme {
    /// The value of `WWW-Authenticate`; `None` if the word cannot be in a header.
    pub fn challenge(&self) -> Option<HeaderValue> {
        match self {
            Self::Basic => Some(HeaderValue::from_static(
                r#"Basic realm="profcol", charset="UTF-8""#,
            )),
            Self::Token(word) => HeaderValue::try_from(format!(r#"{word} realm="profcol""#)).ok(),
        }
    }
}

/// The value of `Authorization` for a user, by basic authentication.
pub fn basic_authorization(user: &[u8], password: &[u8]) -> HeaderValue {
    let encoded = BASE64_STANDARD.encode([user, b":", password].concat());
    let mut value =
        HeaderValue::try_from(format!("Basic {encoded}")).expect("base64 is valid in a header");
    value.set_sensitive(true);
    value
}

/// Provides the headers that authenticate an outgoing request.
#[async_trait]
pub trait ClientAuth: Send + Sync + std::fmt::Debug {
    async fn headers(&self) -> Result<Vec<(HeaderName, HeaderValue)>, ClientAuthError>;
}

/// Failed to get credentials; the request was not sent.
#[derive(Debug, thiserror::Error)]
#[error("failed to get credentials: {0}")]
pub struct ClientAuthError(#[source] Box<dyn Error + Send + Sync>);

impl ClientAuthError {
    pub fn new(error: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self(error.into())
    }
}

/// Caller information from the authenticator, for the request handler.
#[derive(Clone, Default)]
pub struct AuthData {
    /// The caller's name, if known.
    pub subject: Option<Arc<str>>,
    /// Further data by agreement of authenticator and handler.
    pub extra: Option<Arc<dyn Any + Send + Sync>>,
}

impl std::fmt::Debug for AuthData {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AuthData")
            .field("subject", &self.subject)
            .finish_non_exhaustive()
    }
}
