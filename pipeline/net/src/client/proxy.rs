//! HTTP proxies: selection and tunnels.

use http::{HeaderValue, Uri};
use hyper_util::client::proxy::matcher::{Intercept, Matcher};
use profcol_config::Url;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::error::ProxyError;
use crate::socket::Socket;
use crate::{SettingsError, UnsupportedProxy, UrlError};

/// Maximum size of the response to CONNECT.
const MAX_HEAD: usize = 8 << 10;

/// Proxy rules from the configuration or the environment.
#[derive(Debug)]
pub(super) struct Proxies {
    matcher: Matcher,
    from_env: bool,
}

/// A selected proxy.
#[derive(Clone, Debug)]
pub(super) struct Proxy {
    pub host: String,
    pub port: u16,
    pub authorization: Option<HeaderValue>,
}

impl Proxies {
    /// `url` is the configured proxy; empty uses the environment.
    pub fn new(url: &Url) -> Result<Proxies, SettingsError> {
        if url.is_empty() {
            return Ok(Proxies {
                matcher: Matcher::from_env(),
                from_env: true,
            });
        }
        let uri = url.expose().parse::<Uri>();
        let uri = uri.map_err(|error| UrlError::new(url, error))?;
        if uri.scheme_str() != Some("http") || uri.host().is_none_or(str::is_empty) {
            return Err(UnsupportedProxy::Url(url.clone()).into());
        }
        Ok(Proxies {
            matcher: Matcher::builder().all(url.expose().to_owned()).build(),
            from_env: false,
        })
    }

    pub fn for_target(
        &self,
        https: bool,
        host: &str,
        port: u16,
    ) -> Result<Option<Proxy>, UnsupportedProxy> {
        let address: Option<std::net::IpAddr> = host.parse().ok();
        let here = host == "localhost" || address.is_some_and(|address| address.is_loopback());
        if self.from_env && here {
            return Ok(None);
        }
        let scheme = if https { "https" } else { "http" };
        let host = if host.contains(':') {
            format!("[{host}]")
        } else {
            host.to_owned()
        };
        let Ok(target) = format!("{scheme}://{host}:{port}/").parse::<Uri>() else {
            return Ok(None);
        };
        self.matcher
            .intercept(&target)
            .map(|found| proxy(&found))
            .transpose()
    }
}

fn proxy(found: &Intercept) -> Result<Proxy, UnsupportedProxy> {
    let uri = found.uri();
    match (uri.scheme_str(), uri.host()) {
        (Some("http"), Some(host)) => Ok(Proxy {
            host: host.to_owned(),
            port: uri.port_u16().unwrap_or(80),
            authorization: found.basic_auth().cloned(),
        }),
        (scheme, _) => {
            let scheme = scheme.unwrap_or("unknown");
            Err(UnsupportedProxy::Scheme(scheme.to_owned()))
        }
    }
}

/// Opens a tunnel through the proxy.
pub(super) async fn tunnel(
    socket: &mut Socket,
    target: &str,
    proxy: &Proxy,
) -> Result<(), ProxyError> {
    let mut request = format!("CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n").into_bytes();
    if let Some(authorization) = &proxy.authorization {
        request.extend_from_slice(b"Proxy-Authorization: ");
        request.extend_from_slice(authorization.as_bytes());
        request.extend_from_slice(b"\r\n");
    }
    request.extend_from_slice(b"\r\n");
    socket.write_all(&request).await?;
    let mut head = Vec::new();
    // Read byte by byte: data after the head belongs to the tunnel.
    while !head.ends_with(b"\r\n\r\n") {
        if head.len() == MAX_HEAD {
            return Err(ProxyError::LongResponse);
        }
        head.push(socket.read_u8().await.map_err(ProxyError::Closed)?);
    }
    let line =
        String::from_utf8_lossy(head.split(|&byte| byte == b'\r').next().unwrap_or_default());
    let status = line.split(' ').nth(1).unwrap_or_default();
    if status.len() == 3 && status.starts_with('2') {
        Ok(())
    } else {
        Err(ProxyError::Refused(line.into_owned()))
    }
}
