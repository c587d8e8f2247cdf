//! HTTP transport: gRPC and plain HTTP, server and client.
//!
//! Transports whole messages as opaque bytes. Receiving copies a message once, into a buffer of its size; sending does
//! not copy. Compressed bytes are kept with the message, so that unchanged messages are forwarded as received.

#![cfg_attr(
    test,
    allow(
        clippy::unwrap_used,
        clippy::print_stderr,
        reason = "a panic fails the test; skipped tests print so"
    )
)]

pub mod auth;
mod body;
mod chunks;
mod client;
pub mod compress;
mod errors;
pub mod grpc;
mod hint;
mod io;
mod message;
mod pace;
pub mod retry;
mod server;
mod settings;
mod socket;
pub mod tls;

pub use chunks::Chunks;
pub use client::{
    Balancer, BrokenExchange, ClientError, CompressionParams, ConnectError, DirectHttp,
    DirectStream, GrpcCall, GrpcClient, GrpcClientKeepalive, GrpcClientSettings, GrpcReply,
    GrpcStream, Http2Error, HttpCall, HttpClient, HttpClientKeepalive, HttpClientSettings,
    HttpDownload, HttpError, HttpReply, LookupError, ProxyError, TlsFailure, is_http_url,
    lookup_within,
};
pub use compress::{Compression, Encoding, Level};
pub use errors::{EndpointError, ErrorAt, SettingsError, UnsupportedProxy, UrlError};
pub use hint::Hint;
pub use io::{PeerAddr, SystemError};
pub use message::{Compressed, Content, Message};
pub use server::{
    AddressError, AllowedHosts, AuthSettings, BindError, BoundAddr, Connection, Cors,
    EnforcementPolicy, GrpcRequest, GrpcServer, GrpcServerKeepalive, GrpcServerSettings,
    GrpcServerStream, GrpcService, HttpRequest, HttpServer, HttpServerKeepalive,
    HttpServerSettings, HttpService, KeepSockets, ListeningSockets, ServerError, ServerParameters,
    ServerStats, Transport, guarded, is_loopback, response, unknown_method,
};
