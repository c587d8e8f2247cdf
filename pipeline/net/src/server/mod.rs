//! Listening: one accept loop for gRPC and HTTP, and a driver for each.
//!
//! ```text
//! Listener::bind ─► Acceptor::run ─► a task per connection: TLS handshake ─► gRPC or HTTP driver
//!                        │                                                       │ per request
//!                        └ caps, back-off, stop                                  └► your service
//! ```
//!
//! Binding and serving are separate steps, so that a port in use is known before anything runs.
//! A message is bounded in size, and all of them together by what [`Admission`] has room for: bytes
//! are taken as they arrive, room for the decompressed message is reserved before it is made. A
//! service can refuse at the door (`admit`) before a message is read.
//!
//! [`Admission`]: profcol_admission::Admission

mod accept;
mod cors;
mod grpc;
mod guard;
mod http;
mod lifetime;
mod listen;
mod settings;

pub use accept::{Connection, ServerStats};
pub(crate) use grpc::GRPC_ENCODING;
pub use grpc::{GrpcConversation, GrpcRequest, GrpcServer, GrpcService, unknown_method};
pub use http::{HttpRequest, HttpServer, HttpService, response};
pub use listen::{BindError, BoundAddr, Transport};
pub(crate) use listen::{or_loopback, split_host_port};
pub use settings::{
    AuthSettings, Cors, EnforcementPolicy, GrpcServerKeepalive, GrpcServerSettings,
    HttpServerKeepalive, HttpServerSettings, ServerParameters,
};

/// How much a client may send on one HTTP/2 stream ahead of our taking it; four times as much on one
/// connection.
const WINDOW: u32 = 1 << 20;

/// A server could not be set up.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    #[error(transparent)]
    Bind(#[from] BindError),
    #[error("tls: {0}")]
    Tls(#[from] crate::tls::TlsError),
    #[error("{0}")]
    Settings(String),
}
