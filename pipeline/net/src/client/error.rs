//! Why there is no connection. Each error says what to check.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use crate::UnsupportedProxy;
use crate::io::SystemError;

/// Connect timeout, for all addresses and handshakes together.
pub(super) const CONNECT_TIMEOUT: Duration = Duration::from_secs(20);
#[derive(Clone, Debug, thiserror::Error)]
pub enum ConnectError {
    #[error("failed to look up {host}: {error}; check the endpoint and this host's DNS")]
    Lookup {
        host: String,
        #[source]
        error: LookupError,
    },
    #[error("failed to connect to {endpoint}: {error}{hint}")]
    Connect {
        endpoint: String,
        #[source]
        error: SystemError,
        hint: &'static str,
    },
    #[error("failed to connect to {endpoint}: timed out after {} seconds; check the endpoint and firewalls", CONNECT_TIMEOUT.as_secs())]
    Timeout { endpoint: String },
    #[error("TLS handshake with {endpoint} failed: {error}{hint}")]
    Tls {
        endpoint: String,
        #[source]
        error: Arc<io::Error>,
        hint: &'static str,
    },
    #[error("failed to connect to {endpoint}: {error}; check that the server speaks gRPC there")]
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
