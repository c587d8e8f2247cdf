//! What protects pages from other pages in the same browser: the names under which they may be reached, and headers.
//!
//! Another site's page cannot read the answers of this server, unless it resolves its own name to this address ("DNS
//! rebinding"): then the browser sends that name as `Host`.

use std::net::IpAddr;

use bytes::Bytes;
use http::header::{
    CONTENT_SECURITY_POLICY, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS,
};
use http::{HeaderValue, Response};

pub struct AllowedHosts(Vec<String>);

impl AllowedHosts {
    pub fn new(endpoint: &str, more: &[String]) -> Self {
        let mut hosts = vec!["localhost".to_owned(), name(endpoint).to_owned()];
        hosts.extend(more.iter().cloned());
        Self(hosts)
    }

    /// `host` is the client's header, with or without a port.
    pub fn contains(&self, host: &str) -> bool {
        let host = name(host);
        let address = host.trim_matches(['[', ']']).parse::<IpAddr>();
        address.is_ok()
            || self
                .0
                .iter()
                .any(|allowed| allowed.eq_ignore_ascii_case(host))
    }
}

/// No external resources, no inline scripts, no framing by other pages.
const POLICY: HeaderValue = HeaderValue::from_static(
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; \
     base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
);

/// Adds the headers that protect a page and its data in a browser.
pub fn guarded(mut response: Response<Bytes>) -> Response<Bytes> {
    let headers = response.headers_mut();
    headers.insert(CONTENT_SECURITY_POLICY, POLICY);
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(X_FRAME_OPTIONS, HeaderValue::from_static("DENY"));
    headers.insert(REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    response
}

/// Whether an endpoint is reachable from this host only.
pub fn is_loopback(endpoint: &str) -> bool {
    let host = endpoint.rsplit_once(':').map_or(endpoint, |(host, _)| host);
    let host = host.trim_matches(['[', ']']);
    let address = host.parse::<IpAddr>();
    host == "localhost" || address.is_ok_and(|address| address.is_loopback())
}

/// The host without the port.
fn name(host: &str) -> &str {
    match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|it| it.is_ascii_digit()) => name,
        _ => host,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refuses_foreign_host_names() {
        let allowed = AllowedHosts::new("profiles.internal:7071", &["proxy.example".to_owned()]);
        for host in [
            "localhost:7071",
            "127.0.0.1:7071",
            "[::1]:7071",
            "[::1]",
            "LOCALHOST",
            "profiles.internal",
            "proxy.example:443",
        ] {
            assert!(allowed.contains(host), "{host}");
        }
        for host in [
            "evil.example",
            "evil.example:7071",
            "localhost.evil.example",
            "",
            "127.0.0.1.evil.example:7071",
        ] {
            assert!(!allowed.contains(host), "{host}");
        }
    }
}
