//! Who may call, and how we prove who we are: what authentication extensions implement.

use std::any::Any;
use std::sync::Arc;

use async_trait::async_trait;
use http::{HeaderMap, HeaderName, HeaderValue};

use crate::grpc::Status;

/// Decides over each incoming request before its body is read.
#[async_trait]
pub trait ServerAuth: Send + Sync + std::fmt::Debug {
    /// A refusal is usually [`Code::Unauthenticated`](crate::grpc::Code::Unauthenticated); over
    /// HTTP it becomes the matching status.
    async fn authenticate(&self, headers: &HeaderMap) -> Result<AuthData, Status>;
}

/// Gives the headers that authenticate an outgoing request.
#[async_trait]
pub trait ClientAuth: Send + Sync + std::fmt::Debug {
    async fn headers(&self) -> Result<Vec<(HeaderName, HeaderValue)>, ClientAuthError>;
}

/// Credentials could not be had; the request was not sent.
#[derive(Debug, thiserror::Error)]
#[error("failed to get credentials: {0}")]
pub struct ClientAuthError(pub String);

/// What an authenticator learned about the caller, for whoever handles the request.
#[derive(Clone, Default)]
pub struct AuthData {
    /// The name of the caller, if there is one to show.
    pub subject: Option<Arc<str>>,
    /// Whatever else the authenticator and the reader agree upon.
    pub extra: Option<Arc<dyn Any + Send + Sync>>,
}

impl std::fmt::Debug for AuthData {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AuthData")
            .field("subject", &self.subject)
            .finish_non_exhaustive()
    }
}
