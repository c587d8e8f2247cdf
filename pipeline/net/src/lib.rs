//! The transport for everything that speaks HTTP: gRPC and plain HTTP, as server and as client.
//!
//! It moves whole messages as bytes and knows nothing of what is in them. A message is received
//! with one copy, into a buffer of its own size, and sent with none; compressed bytes are kept
//! beside the message they hold, so that what nobody changed is passed on as it came.

#![cfg_attr(
    test,
    allow(
        clippy::unwrap_used,
        clippy::print_stderr,
        reason = "what is unwrapped wrongly fails the test, as it should; skipped tests say so"
    )
)]

pub mod auth;
mod body;
mod chunks;
mod client;
pub mod compress;
pub mod grpc;
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
    Balancer, ClientError, CompressionParams, ConnectError, DirectHttp, DirectStream, GrpcCall,
    GrpcClient, GrpcClientKeepalive, GrpcClientSettings, GrpcReply, GrpcStream, HttpCall,
    HttpClient, HttpClientKeepalive, HttpClientSettings, HttpDownload, HttpError, HttpReply,
    is_http_url,
};
pub use compress::{Compression, Encoding, Level};
pub use io::PeerAddr;
pub use message::{Compressed, Content, Message};
pub use server::{
    AuthSettings, BindError, BoundAddr, Connection, Cors, EnforcementPolicy, GrpcConversation,
    GrpcRequest, GrpcServer, GrpcServerKeepalive, GrpcServerSettings, GrpcService, HttpRequest,
    HttpServer, HttpServerKeepalive, HttpServerSettings, HttpService, ServerError,
    ServerParameters, ServerStats, Transport, response, unknown_method,
};
