//! TLS for clients and servers, with the Collector's settings.
//!
//! Certificates are read when a component is built, so that bad files are detected before anything runs, and reloaded
//! when they change ([`reload`]).

mod client;
mod load;
mod protocol;
mod reload;
mod server;
mod settings;
mod validity;

use std::io;

pub(crate) use client::ClientSide;
pub use protocol::TlsVersion;
pub(crate) use server::ServerSide;
pub use settings::{ClientTls, ServerTls};

/// Invalid TLS settings or files.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    #[error("{0}")]
    Settings(String),
    #[error(transparent)]
    Unsupported(#[from] rustls::Error),
    #[error(
        "failed to read {what} `{path}`: {error}; check `{key}` and that this process may read it"
    )]
    Read {
        what: &'static str,
        path: String,
        #[source]
        error: io::Error,
        key: &'static str,
    },
    #[error("{source_name} contains no PEM-encoded {what}{hint}")]
    Empty {
        source_name: String,
        what: &'static str,
        hint: &'static str,
    },
    #[error("{source_name}: {error}")]
    Invalid {
        source_name: String,
        #[source]
        error: InvalidPem,
    },
    #[error("the certificate in {cert} does not match the key in {key}")]
    Mismatch { cert: String, key: String },
    #[error(
        "no CA certificates found on this host; install the package `ca-certificates` or set `ca_file`"
    )]
    NoSystemRoots,
}

/// Why a certificate or key cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum InvalidPem {
    #[error(transparent)]
    Pem(#[from] rustls_pki_types::pem::Error),
    #[error(transparent)]
    Content(#[from] rustls::Error),
    #[error(transparent)]
    Verifier(#[from] rustls::server::VerifierBuilderError),
}
