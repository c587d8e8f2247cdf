//! Clients: gRPC calls and HTTP requests to one endpoint.
//!
//! ```text
//! GrpcClient ─► Channel: addresses, one HTTP/2 connection each, round_robin or pick_first ─┐
//! HttpClient ─► hyper-util's pool of HTTP/1 and HTTP/2 connections ────────────────────────┼► Dialer
//! DirectHttp ─► one HTTP/1 connection for one request ─────────────────────────────────────┘
//! ```
//!
//! Connections are opened on first use. A call that certainly reached no server is repeated on another connection; for
//! other failures the caller decides with [`crate::retry`].

mod answer;
mod channel;
mod dial;
mod direct;
mod endpoint;
mod error;
mod grpc;
mod http;
mod outgoing;
mod proxy;
mod settings;
mod stream;

use crate::{EndpointError, ErrorAt, SettingsError, UrlError};

pub use dial::lookup_within;
pub use direct::{DirectHttp, DirectStream};
pub use endpoint::is_http_url;
pub use error::{ConnectError, Http2Error, LookupError, ProxyError, TlsFailure};
pub use grpc::{GrpcCall, GrpcClient, GrpcReply};
pub use http::{BrokenExchange, HttpCall, HttpClient, HttpDownload, HttpError, HttpReply};
pub use settings::{
    Balancer, CompressionParams, GrpcClientKeepalive, GrpcClientSettings, HttpClientKeepalive,
    HttpClientSettings,
};
pub use stream::GrpcStream;

/// Larger responses are refused (gRPC) or truncated (HTTP); OTLP's are a few bytes.
const MAX_RESPONSE: usize = 4 << 20;

/// A client could not be set up.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    #[error("endpoint: {0}")]
    Endpoint(#[from] EndpointError),
    #[error("endpoint: {0}")]
    Url(#[from] UrlError),
    #[error("tls: {0}")]
    Tls(#[from] crate::tls::TlsError),
    #[error(transparent)]
    Settings(#[from] SettingsError),
}

impl ClientError {
    pub fn at(self, path: impl Into<String>) -> ErrorAt<Self> {
        let separator = match self {
            Self::Endpoint(_) | Self::Url(_) | Self::Tls(_) => "::",
            Self::Settings(_) => ": ",
        };
        ErrorAt::new(path, separator, self)
    }
}
