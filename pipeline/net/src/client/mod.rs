//! Dialing: gRPC calls and HTTP requests to one endpoint.

mod grpc;

pub use grpc::{GrpcCall, GrpcClient, GrpcReply};
