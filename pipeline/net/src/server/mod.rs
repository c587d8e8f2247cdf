//! Servers: one accept loop with a driver each for gRPC and HTTP.
//!
//! ```text
//! Listener::bind ─► Acceptor::run ─► a task per connection: TLS handshake ─► gRPC or HTTP driver
//!                        │                                                       │ per request
//!                        └ limit, backoff, stop                                  └► your service
//! ```
//!
//! Binding and serving are separate steps, so that a port in use is detected before anything runs. Each message is
//! limited in size, and their total by [`Admission`]: bytes count as they arrive, and memory for decompressed messages
//! is reserved first. A service can refuse a request (`admit`) before its message is read.
//!
//! [`Admission`]: profcol_admission::Admission

mod accept;
mod cors;
mod grpc;
mod guard;
mod hosts;
mod http;
mod lifetime;
mod listen;
mod settings;
mod sockets;

use crate::{ErrorAt, SettingsError};
pub use accept::{Connection, ServerStats};
pub(crate) use grpc::GRPC_ENCODING;
pub use grpc::{GrpcRequest, GrpcServer, GrpcServerStream, GrpcService, unknown_method};
pub use hosts::{AllowedHosts, guarded, is_loopback};
pub use http::{HttpRequest, HttpServer, HttpService, response};
pub use listen::{AddressError, BindError, BoundAddr, Transport};
pub(crate) use listen::{or_loopback, split_host_port};
pub use settings::{
    AuthSettings, Cors, EnforcementPolicy, GrpcServerKeepalive, GrpcServerSettings,
    HttpServerKeepalive, HttpServerSettings, ServerParameters,
};
pub use sockets::{KeepSockets, ListeningSockets};

/// HTTP/2 receive window per stream; four times as much per connection.
const WINDOW: u32 = 1 << 20;

/// Maximum size of a request's headers. Over HTTP/1 hyper buffers six times as much by default.
const MAX_HEADERS: u32 = 64 << 10;

/// A server could not be set up.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    #[error(transparent)]
    Bind(#[from] BindError),
    #[error("tls: {0}")]
    Tls(#[from] crate::tls::TlsError),
    #[error(transparent)]
    Settings(#[from] SettingsError),
    #[error("`response_headers`: {0}")]
    ResponseHeaders(#[source] SettingsError),
}

impl ServerError {
    pub fn at(self, path: impl Into<String>) -> ErrorAt<Self> {
        let separator = match self {
            Self::Bind(_) => "::endpoint: ",
            Self::Tls(_) => "::",
            Self::Settings(_) | Self::ResponseHeaders(_) => ": ",
        };
        ErrorAt::new(path, separator, self)
    }
}
