//! What is wrong with settings and addresses, and what to write instead.

use std::error::Error;

use http::HeaderName;
use http::uri::InvalidUri;
use profcol_config::Url;

/// An endpoint that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EndpointError {
    #[error("address {0}: missing port in address")]
    MissingPort(String),
    #[error("address {0}: missing host")]
    MissingHost(String),
    #[error("invalid port {0:?}")]
    InvalidPort(String),
    #[error("address {0}: an IPv6 address needs brackets, as in [::1]:4317")]
    MissingBrackets(String),
    #[error("unix socket path cannot be empty")]
    EmptySocketPath,
    #[error("custom DNS server {0:?} is not supported; use dns:///host:port")]
    CustomResolver(String),
    #[error("{0:?} lacks a slash; use dns:///host:port")]
    MissingSlash(String),
    #[error("scheme {0:?} is not supported; use host:port, dns:///, http://, https:// or unix:///")]
    UnsupportedScheme(String),
    #[error("invalid host {0:?}")]
    InvalidHost(String),
    #[error("{0:?}: TLS is not supported; use http:// or unix://")]
    Tls(String),
    #[error("\"{0}\" is not supported; use http://host:port or https://host:port")]
    NotHttp(Url),
    #[error("user and password are not supported here; use `auth` or `headers`")]
    Credentials,
}

/// Settings that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum SettingsError {
    #[error("{0:?} is not a valid header name")]
    HeaderName(String),
    #[error("the value of header `{0}` contains invalid characters")]
    HeaderValue(HeaderName),
    #[error("user agent {0:?} is not a valid header value")]
    UserAgent(String),
    #[error("cannot use the old keys {old} alongside the `keepalive` section; move them into it")]
    OldKeepaliveKeys { old: &'static str },
    #[error("unsupported parameters {{Level:{level}}} for compression type {compression:?}")]
    CompressionLevel {
        level: i32,
        compression: &'static str,
    },
    #[error("unsupported compression type {0:?} for gRPC; use gzip, zstd, snappy or none")]
    GrpcCompression(&'static str),
    #[error(transparent)]
    Url(#[from] UrlError),
    #[error(transparent)]
    Proxy(#[from] UnsupportedProxy),
}

/// Text that is not a URL.
#[derive(Debug, thiserror::Error)]
#[error("invalid URL {url:?}: {error}")]
pub struct UrlError {
    url: Url,
    #[source]
    error: InvalidUri,
}

impl UrlError {
    pub fn new(url: &Url, error: InvalidUri) -> Self {
        let url = url.clone();
        Self { url, error }
    }
}

/// A proxy of another kind than HTTP.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UnsupportedProxy {
    #[error("{0:?} is not supported; use http://host:port")]
    Url(Url),
    #[error(
        "{0} proxies are not supported, only http://host:port (from proxy_url or the environment)"
    )]
    Scheme(String),
}

/// An error in settings, with the path of those settings in the configuration.
#[derive(Debug, thiserror::Error)]
#[error("{path}{separator}{error}")]
pub struct ErrorAt<E: Error> {
    path: String,
    separator: &'static str,
    #[source]
    error: Box<E>,
}

impl<E: Error> ErrorAt<E> {
    pub(crate) fn new(path: impl Into<String>, separator: &'static str, error: E) -> Self {
        Self {
            path: path.into(),
            separator,
            error: error.into(),
        }
    }

    pub fn error(&self) -> &E {
        &self.error
    }
}
