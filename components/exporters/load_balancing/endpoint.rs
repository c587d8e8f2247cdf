//! Names of endpoints.

use std::collections::BTreeSet;
use std::net::Ipv6Addr;

/// As in the Collector.
pub(super) const DEFAULT_PORT: u16 = 4317;

/// More endpoints are left out: each has a queue.
pub(super) const MAX: usize = 1000;

/// Adds the default port to a host name or address without one. URLs and Unix sockets stay as they are.
pub(super) fn with_port(hostname: &str) -> String {
    if hostname.contains("://") || hostname.starts_with("unix:") {
        return hostname.to_owned();
    }
    if hostname.parse::<Ipv6Addr>().is_ok() {
        return at_port(hostname, DEFAULT_PORT);
    }
    let has_port = match hostname.rsplit_once(']') {
        Some((_, rest)) => rest.starts_with(':'),
        None => hostname.contains(':'),
    };
    match has_port {
        true => hostname.to_owned(),
        false => at_port(hostname, DEFAULT_PORT),
    }
}

/// A port of a host name or address.
pub(super) fn at_port(host: &str, port: u16) -> String {
    match host.parse::<Ipv6Addr>() {
        Ok(_) => format!("[{host}]:{port}"),
        Err(_) => format!("{host}:{port}"),
    }
}

/// The endpoints of a fixed list.
pub(super) fn from_hostnames(hostnames: &[String]) -> BTreeSet<String> {
    hostnames.iter().map(|it| with_port(it)).collect()
}

/// Removes the last ones if there are too many, and returns how many.
pub(super) fn bound(endpoints: &mut BTreeSet<String>) -> usize {
    let before = endpoints.len();
    while endpoints.len() > MAX {
        endpoints.pop_last();
    }
    before - endpoints.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints_without_a_port_get_the_default_one() {
        for (hostname, endpoint) in [
            ("gateway", "gateway:4317"),
            ("gateway:14317", "gateway:14317"),
            ("10.0.0.1", "10.0.0.1:4317"),
            ("fd00::1", "[fd00::1]:4317"),
            ("[fd00::1]", "[fd00::1]:4317"),
            ("[fd00::1]:1", "[fd00::1]:1"),
            ("dns:///gateway:1", "dns:///gateway:1"),
            ("unix:///run/gateway", "unix:///run/gateway"),
        ] {
            assert_eq!(with_port(hostname), endpoint);
        }
    }

    #[test]
    fn the_number_of_endpoints_is_bounded() {
        let endpoints = |count: usize| {
            (0..count)
                .map(|it| format!("gateway-{it:04}:4317"))
                .collect()
        };
        let mut many: BTreeSet<String> = endpoints(MAX + 7);
        assert_eq!(bound(&mut many), 7);
        assert_eq!(many, endpoints(MAX));
        assert_eq!(bound(&mut many), 0);
    }
}
