//! Dialing: gRPC calls and HTTP requests to one endpoint.
//!
//! ```text
//! GrpcClient ─► Channel: addresses, one HTTP/2 connection each, round_robin or pick_first ─┐
//! HttpClient ─► hyper-util's pool of HTTP/1 and HTTP/2 connections ────────────────────────┼► Dialer
//! DirectHttp ─► one HTTP/1 connection for one request ─────────────────────────────────────┘
//! ```
//!
//! Connections are made when first needed. A call that certainly reached no server is made again on
//! another connection; whether one that failed otherwise may be repeated is the caller's to decide,
//! by [`crate::retry`].

mod channel;
mod dial;
mod direct;
mod endpoint;
mod grpc;
mod http;
mod outgoing;
mod proxy;
mod settings;
mod stream;

pub use dial::ConnectError;
pub use direct::{DirectHttp, DirectStream};
pub use endpoint::is_http_url;
pub use grpc::{GrpcCall, GrpcClient, GrpcReply};
pub use http::{HttpCall, HttpClient, HttpDownload, HttpError, HttpReply};
pub use settings::{
    Balancer, CompressionParams, GrpcClientKeepalive, GrpcClientSettings, HttpClientKeepalive,
    HttpClientSettings,
};
pub use stream::GrpcStream;

/// Answers larger than this are refused (gRPC) or cut (HTTP); OTLP's are a few bytes.
const MAX_ANSWER: usize = 4 << 20;

/// A client could not be set up.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    #[error("endpoint: {0}")]
    Endpoint(String),
    #[error("tls: {0}")]
    Tls(#[from] crate::tls::TlsError),
    #[error("{0}")]
    Settings(String),
}
