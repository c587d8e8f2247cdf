//! Which names the page may be reached under.
//!
//! A page of a stranger cannot read what this server answers, unless it makes its own name point here ("DNS
//! rebinding"): then the browser says that name as `Host`.

use std::net::IpAddr;

pub(super) struct AllowedHosts(Vec<String>);

impl AllowedHosts {
    pub fn new(endpoint: &str, more: &[String]) -> Self {
        let mut hosts = vec!["localhost".to_owned(), name(endpoint).to_owned()];
        hosts.extend(more.iter().cloned());
        Self(hosts)
    }

    /// `host` is what a client sends, with or without a port.
    pub fn contains(&self, host: &str) -> bool {
        let host = name(host);
        let address = host.trim_matches(['[', ']']).parse::<IpAddr>();
        address.is_ok() || self.0.iter().any(|known| known.eq_ignore_ascii_case(host))
    }
}

/// Without the port.
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
    fn a_name_of_a_stranger_is_refused() {
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
