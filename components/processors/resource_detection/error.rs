//! Why a detector has no answer.

use http::StatusCode;
use profcol_config::Duration;
use profcol_metadata::otel_resource_attributes::InvalidPair;
use profcol_net::{ClientError, HttpError};

#[derive(Debug, thiserror::Error)]
pub(super) enum DetectionError {
    #[error("no answer within {0}")]
    Timeout(Duration),
    #[error("profcol is shutting down")]
    ShuttingDown,
    #[error(transparent)]
    Environment(#[from] InvalidPair),
    #[error("none of `hostname_sources` returned a host name; add `os`")]
    NoHostName,
    #[error(transparent)]
    Client(#[from] ClientError),
    #[error("{name}: invalid header value {value:?}")]
    Header { name: &'static str, value: String },
    #[error(transparent)]
    Request(#[from] HttpError),
    #[error("{url}: {error}")]
    Response {
        url: String,
        #[source]
        error: ResponseError,
    },
}

/// What is wrong with a response of a metadata service.
#[derive(Debug, thiserror::Error)]
pub(super) enum ResponseError {
    #[error("status {0}")]
    Status(StatusCode),
    #[error("the response is too long")]
    TooLong,
    #[error("the response is not UTF-8")]
    NotUtf8,
    #[error("failed to decode the response: {0}")]
    Json(#[from] serde_json::Error),
    #[error("the response has no {0}")]
    Missing(&'static str),
}
