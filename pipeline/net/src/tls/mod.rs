//! TLS for clients and servers, with the Collector's settings.
//!
//! Certificates are read when a component is built, so that bad files are detected before anything runs, and reloaded
//! when they change ([`reload`]).

mod client;
mod load;
mod reload;
mod server;
mod settings;
mod validity;

pub(crate) use client::ClientSide;
pub(crate) use server::ServerSide;
pub use settings::{ClientTls, ServerTls, TlsVersion};

/// Invalid TLS settings or files.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    #[error("{0}")]
    Settings(String),
    #[error(
        "failed to read {what} `{path}`: {error}; check `{key}` and that this process may read it"
    )]
    Read {
        what: &'static str,
        path: String,
        error: String,
        key: &'static str,
    },
    #[error("{source_name} contains no PEM-encoded {what}{hint}")]
    Empty {
        source_name: String,
        what: &'static str,
        hint: &'static str,
    },
    #[error("{source_name}: {error}")]
    Invalid { source_name: String, error: String },
    #[error("the certificate in {cert} does not match the key in {key}")]
    Mismatch { cert: String, key: String },
    #[error(
        "no CA certificates found on this host; install the package `ca-certificates` or set `ca_file`"
    )]
    NoSystemRoots,
}

/// What a client should check after this alert.
pub(crate) fn alert_hint(alert: rustls::AlertDescription) -> &'static str {
    use rustls::AlertDescription as Alert;
    match alert {
        Alert::CertificateRequired | Alert::HandshakeFailure => {
            "; the server may require a client certificate: set `tls::cert_file` and `tls::key_file`"
        }
        Alert::UnknownCA
        | Alert::BadCertificate
        | Alert::CertificateUnknown
        | Alert::CertificateExpired
        | Alert::CertificateRevoked
        | Alert::DecryptError
        | Alert::AccessDenied => {
            "; the server rejected the client certificate: check `tls::cert_file`"
        }
        Alert::NoApplicationProtocol => "; the endpoint does not support HTTP/2",
        _ => "",
    }
}
