//! What several exporters use.

#[cfg(test)]
pub(crate) mod backend;
pub(crate) mod otlp;
pub(crate) mod parca;
