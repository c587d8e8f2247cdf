//! Why there is no connection, and what to check.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use crate::UnsupportedProxy;
use crate::hint::Hint;
use crate::io::SystemError;
use crate::tls::TlsError;

/// Connect timeout, for all addresses and handshakes together.
pub(super) const CONNECT_TIMEOUT: Duration = Duration::from_secs(20);

/// The text leaves out the [hint](Self::hint), which the errors of requests append.
#[derive(Clone, Debug, thiserror::Error)]
pub enum ConnectError {
    #[error("failed to look up {host}: {error}")]
    Lookup {
        host: String,
        #[source]
        error: LookupError,
    },
    #[error("failed to connect to {endpoint}: {error}")]
    Connect {
        endpoint: String,
        #[source]
        error: SystemError,
    },
    #[error("failed to connect to {endpoint}: timed out after {} seconds", CONNECT_TIMEOUT.as_secs())]
    Timeout { endpoint: String },
    #[error("TLS handshake with {endpoint} failed: {error}")]
    Tls {
        endpoint: String,
        #[source]
        error: TlsFailure,
    },
    #[error("failed to connect to {endpoint}: {error}")]
    Http2 {
        endpoint: String,
        #[source]
        error: Http2Error,
    },
    #[error("failed to reach {endpoint} through the proxy {proxy}: {error}")]
    Proxy {
        endpoint: String,
        proxy: String,
        #[source]
        error: Arc<ProxyError>,
    },
}

/// Why a TLS handshake failed.
#[derive(Clone, Debug, thiserror::Error)]
pub enum TlsFailure {
    #[error(transparent)]
    Name(Arc<TlsError>),
    #[error(transparent)]
    Handshake(Arc<io::Error>),
}

impl ConnectError {
    pub fn hint(&self) -> Option<Hint> {
        match self {
            Self::Lookup { .. } => Some(Hint::CheckEndpointAndDns),
            Self::Connect { error, .. } => error.hint(),
            Self::Timeout { .. } => Some(Hint::CheckEndpointAndFirewalls),
            Self::Tls { error, .. } => error.hint(),
            Self::Http2 { .. } => Some(Hint::CheckGrpc),
            Self::Proxy { error, .. } => match &**error {
                ProxyError::Connect(error) => error.hint(),
                _ => None,
            },
        }
    }
}

impl SystemError {
    fn hint(&self) -> Option<Hint> {
        match self.0.kind() {
            io::ErrorKind::ConnectionRefused => Some(Hint::StartServer),
            io::ErrorKind::NotFound => Some(Hint::CheckSocketPath),
            io::ErrorKind::PermissionDenied => Some(Hint::CheckSocketPermissions),
            io::ErrorKind::HostUnreachable | io::ErrorKind::NetworkUnreachable => {
                Some(Hint::CheckRoutesAndFirewalls)
            }
            _ => None,
        }
    }
}

impl TlsFailure {
    fn hint(&self) -> Option<Hint> {
        match self {
            Self::Name(_) => None,
            Self::Handshake(error) => Hint::from_handshake(error),
        }
    }
}

/// Why a connection does not speak HTTP/2.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Http2Error {
    #[error("HTTP/2 handshake timed out")]
    Timeout,
    #[error(transparent)]
    Failed(Arc<h2::Error>),
}

/// Why a host has no address.
#[derive(Clone, Debug, thiserror::Error)]
pub enum LookupError {
    #[error("no response")]
    Timeout,
    #[error("no address found")]
    NoAddress,
    #[error("missing host")]
    MissingHost,
    #[error(transparent)]
    Failed(Arc<io::Error>),
}

/// Why a proxy is of no use.
#[derive(Debug, thiserror::Error)]
pub enum ProxyError {
    #[error(transparent)]
    Unsupported(#[from] UnsupportedProxy),
    #[error(transparent)]
    Connect(#[from] ConnectError),
    #[error(transparent)]
    Write(#[from] io::Error),
    #[error("connection closed: {0}")]
    Closed(#[source] io::Error),
    #[error("the response to CONNECT is too long")]
    LongResponse,
    #[error("unexpected response to CONNECT: {0:?}")]
    Refused(String),
}
