//! The query API of Pyroscope, as Grafana speaks it: `querier.v1` over Connect.
//!
//! ```text
//! request  protobuf or JSON ─► messages        messages ─► protobuf or JSON  answer
//!                                                 ▲
//! CallTree ─┬─ FlameGraph, FlameGraphDiff   rows of bars in numbers
//!           └─ Profile                      pprof
//! ```
//!
//! This crate knows no network and nothing of what is asked.

mod connect;
mod flame_graph;
mod json;
pub mod messages;
mod pprof;
mod profile_type;
#[cfg(test)]
mod tests;

pub use connect::{Code, Codec, Failure, Method};
pub use profile_type::{MalformedProfileType, ProfileTypeId, parse};
