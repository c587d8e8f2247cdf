//! Pyroscope's query API as used by Grafana: `querier.v1` over Connect.
//!
//! ```text
//! request  protobuf or JSON ─► messages        messages ─► protobuf or JSON  response
//!                                                 ▲
//! CallTree ─┬─ FlameGraph, FlameGraphDiff   rows of bars in numbers
//!           └─ Profile                      pprof
//! ```
//!
//! This crate does no I/O and does not evaluate queries.

mod connect;
mod flame_graph;
mod json;
pub mod messages;
mod pprof;
mod profile_type;
#[cfg(test)]
mod tests;

pub use connect::{Codec, ConnectCode, ConnectMethod, ConnectRpcError};
pub use profile_type::{MalformedProfileType, ProfileTypeId, parse};
