//! What several exporters use.

pub(crate) mod otlp;
