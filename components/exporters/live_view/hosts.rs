//! The names under which the page may be reached.
//!
//! Another site's page cannot read the answers of this server, unless it resolves its own name to this address ("DNS
//! rebinding"): then the browser sends that name as `Host`.

use std::net::IpAddr;

pub(super) struct AllowedHosts(Vec<String>);

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
