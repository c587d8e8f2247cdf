//! Shared by several exporters.

pub(crate) mod attribute_bytes;
#[cfg(test)]
pub(crate) mod backend;
pub(crate) mod handshake;
pub(crate) mod otlp;
pub(crate) mod otlp_grpc;
#[cfg(feature = "parca")]
pub(crate) mod parca;
pub(crate) mod pprof_builder;
pub(crate) mod pprof_labels;
