//! The transport for everything that speaks HTTP: gRPC and plain HTTP, as server and as client.
//!
//! It moves whole messages as bytes and knows nothing of what is in them. A message is received
//! with one copy, into a buffer of its own size, and sent with none; compressed bytes are kept
//! beside the message they hold, so that what nobody changed is passed on as it came.

pub mod auth;
mod client;
pub mod compress;
pub mod grpc;
mod io;
mod message;
mod pace;
mod server;

pub use client::{GrpcCall, GrpcClient, GrpcReply};
pub use compress::{Compression, Encoding, Level};
pub use io::PeerAddr;
pub use message::{Compressed, Message};
pub use server::{
    BindError, BoundAddr, Connection, GrpcRequest, GrpcServer, GrpcService, ServerStats,
};
