//! Listening: one accept loop for gRPC and HTTP, and a driver for each.
//!
//! ```text
//! Listener::bind ─► Acceptor::run ─► a task per connection: TLS handshake ─► gRPC or HTTP driver
//!                        │                                                       │ per request
//!                        └ caps, back-off, stop                                  └► your service
//! ```
//!
//! Binding and serving are separate steps, so that a port in use is known before anything runs.

mod accept;
mod grpc;
mod listen;

pub use accept::{Connection, ServerStats};
pub use grpc::{GrpcRequest, GrpcServer, GrpcService};
pub use listen::{BindError, BoundAddr};
