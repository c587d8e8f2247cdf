//! What several exporters use.

#[cfg(test)]
pub(crate) mod backend;
pub(crate) mod otlp;
#[cfg(feature = "parca")]
pub(crate) mod parca;
