//! Endpoint syntax.

use std::path::PathBuf;

use http::Uri;

use crate::EndpointError;
use crate::server::split_host_port;

/// A gRPC server's address, and whether its scheme requires TLS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct GrpcTarget {
    pub endpoint: Endpoint,
    pub tls: TlsByScheme,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Endpoint {
    /// A host name or address to resolve.
    Host {
        host: String,
        port: u16,
    },
    Unix(PathBuf),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TlsByScheme {
    /// No scheme: `tls` decides.
    Open,
    Never,
    Always,
}

/// Whether this is a complete HTTP URL. `http://:80`, the result of an empty variable, is not.
pub fn is_http_url(text: &str) -> bool {
    text.parse::<Uri>().is_ok_and(|url| {
        matches!(url.scheme_str(), Some("http" | "https"))
            && url.host().is_some_and(|host| !host.is_empty())
    })
}

impl GrpcTarget {
    pub fn parse(endpoint: &str) -> Result<GrpcTarget, EndpointError> {
        if let Some(path) = endpoint.strip_prefix("unix:") {
            let path = path.strip_prefix("//").unwrap_or(path);
            if path.is_empty() {
                return Err(EndpointError::EmptySocketPath);
            }
            return Ok(GrpcTarget {
                endpoint: Endpoint::Unix(PathBuf::from(path)),
                tls: TlsByScheme::Open,
            });
        }
        if endpoint.contains('@') {
            return Err(EndpointError::Credentials);
        }
        let (tls, address) = match endpoint.split_once("://") {
            None => (TlsByScheme::Open, endpoint),
            Some(("http", rest)) => (TlsByScheme::Never, rest.trim_end_matches('/')),
            Some(("https", rest)) => (TlsByScheme::Always, rest.trim_end_matches('/')),
            // dns://resolver/host:port; the system chooses the resolver.
            Some(("dns" | "passthrough", rest)) => match rest.split_once('/') {
                Some(("", address)) => (TlsByScheme::Open, address),
                Some((resolver, _)) => {
                    return Err(EndpointError::CustomResolver(resolver.to_owned()));
                }
                None => {
                    return Err(EndpointError::MissingSlash(endpoint.to_owned()));
                }
            },
            Some((scheme, _)) => {
                return Err(EndpointError::UnsupportedScheme(scheme.to_owned()));
            }
        };
        let (host, port) = split_host_port(address)?;
        if host.is_empty() {
            return Err(EndpointError::MissingHost(address.to_owned()));
        }
        Ok(GrpcTarget {
            endpoint: Endpoint::Host {
                host: host.to_owned(),
                port,
            },
            tls,
        })
    }

    /// Default `:authority` of calls.
    pub fn authority(&self) -> String {
        match &self.endpoint {
            Endpoint::Unix(_) => "localhost".to_owned(),
            Endpoint::Host { host, port } if host.contains(':') => format!("[{host}]:{port}"),
            Endpoint::Host { host, port } => format!("{host}:{port}"),
        }
    }

    /// The name in the server's certificate.
    pub fn host(&self) -> &str {
        match &self.endpoint {
            Endpoint::Unix(_) => "localhost",
            Endpoint::Host { host, .. } => host,
        }
    }
}

/// Host and port of an HTTP URL.
pub(super) fn host_and_port(url: &Uri) -> Option<(&str, u16)> {
    let host = url.host()?;
    let host = host
        .strip_prefix('[')
        .and_then(|host| host.strip_suffix(']'))
        .unwrap_or(host);
    let port = url.port_u16().or(match url.scheme_str()? {
        "http" => Some(80),
        "https" => Some(443),
        _ => None,
    })?;
    Some((host, port))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_endpoints_as_the_collector_does() {
        let host = |host: &str, port, tls| {
            Ok(GrpcTarget {
                endpoint: Endpoint::Host {
                    host: host.to_owned(),
                    port,
                },
                tls,
            })
        };
        let unix = |path: &str| {
            Ok(GrpcTarget {
                endpoint: Endpoint::Unix(PathBuf::from(path)),
                tls: TlsByScheme::Open,
            })
        };
        for (endpoint, expected) in [
            ("collector:4317", host("collector", 4317, TlsByScheme::Open)),
            ("[::1]:4317", host("::1", 4317, TlsByScheme::Open)),
            ("http://h:1/", host("h", 1, TlsByScheme::Never)),
            ("https://h:1", host("h", 1, TlsByScheme::Always)),
            ("dns:///h:1", host("h", 1, TlsByScheme::Open)),
            ("unix:///run/o.sock", unix("/run/o.sock")),
            ("unix:o.sock", unix("o.sock")),
            (
                "collector",
                Err("address collector: missing port in address"),
            ),
            ("h:grpc", Err("invalid port \"grpc\"")),
            (":4317", Err("address :4317: missing host")),
            ("unix://", Err("unix socket path cannot be empty")),
            (
                "http://user:hunter2@h:1",
                Err("user and password are not supported here; use `auth` or `headers`"),
            ),
            (
                "dns://8.8.8.8/h:1",
                Err("custom DNS server \"8.8.8.8\" is not supported; use dns:///host:port"),
            ),
            (
                "xds:///h:1",
                Err(
                    "scheme \"xds\" is not supported; use host:port, dns:///, http://, https:// or unix:///",
                ),
            ),
        ] {
            let got = GrpcTarget::parse(endpoint).map_err(|error| error.to_string());
            assert_eq!(
                got.as_ref().map_err(String::as_str),
                expected.as_ref().map_err(|e| *e),
                "{endpoint}"
            );
        }
    }

    #[test]
    fn a_url_has_a_scheme_and_a_host() {
        for (text, expected) in [
            ("http://h:4318", true),
            ("https://h/v1", true),
            ("http://[::1]:1", true),
            ("http://:4318", false),
            ("https:///path", false),
            ("ftp://h", false),
            ("h:4318", false),
            ("", false),
        ] {
            assert_eq!(is_http_url(text), expected, "{text}");
        }
    }

    #[test]
    fn an_ipv6_host_is_in_brackets_in_the_authority() {
        assert_eq!(
            GrpcTarget::parse("[::1]:4317").unwrap().authority(),
            "[::1]:4317"
        );
    }
}
