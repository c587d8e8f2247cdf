//! Checks whether a component can listen on its endpoint.

use std::fs;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, ToSocketAddrs};
use std::path::Path;
use std::time::Duration;

use tokio::task::spawn_blocking;
use tokio::time::timeout;

use super::{Check, path_check};

const NOT_STARTED: &str = "profcol does not start";

/// A slower lookup is of a name whose server does not respond.
const TIMEOUT: Duration = Duration::from_secs(4);

/// What a server listens on, and who may use it.
#[derive(Clone, Debug)]
pub struct Listening {
    /// The name of the check.
    pub name: &'static str,
    /// `host:port`, or the path of a Unix socket.
    pub endpoint: String,
    pub is_unix: bool,
    /// Whether it matters who connects: it has data, or takes some.
    pub is_sensitive: bool,
    /// By TLS or authentication.
    pub is_protected: bool,
    /// Whether another port is taken if this one is in use.
    pub may_move: bool,
}

impl Listening {
    pub fn new(name: &'static str, endpoint: &str, is_unix: bool, is_protected: bool) -> Self {
        Self {
            name,
            endpoint: endpoint.to_owned(),
            is_unix,
            is_sensitive: true,
            is_protected,
            may_move: false,
        }
    }

    /// Listens for a moment, and closes the port again.
    pub async fn check(self) -> Vec<Check> {
        if self.is_unix {
            return self.check_socket().await;
        }
        let (name, endpoint) = (self.name, self.endpoint.clone());
        match timeout(TIMEOUT, spawn_blocking(move || self.check_port())).await {
            Ok(Ok(check)) => vec![check],
            Ok(Err(_)) | Err(_) => vec![Check::new(name, format!("{endpoint}: timeout")).fail(
                NOT_STARTED,
                "check the DNS server, or use an IP address in `endpoint`",
            )],
        }
    }

    async fn check_socket(self) -> Vec<Check> {
        let path = Path::new(&self.endpoint);
        if path.exists() {
            // Whether it is in use shows at the start only: to connect would disturb its owner.
            return vec![Check::new(self.name, format!("{} exists", self.endpoint))];
        }
        path_check::of_file(path, false).await
    }

    fn check_port(&self) -> Check {
        let endpoint = &self.endpoint;
        let addresses = match addresses(endpoint) {
            Ok(addresses) => addresses,
            Err(error) => {
                return Check::new(self.name, format!("{endpoint}: {error}")).fail(
                    NOT_STARTED,
                    "set `endpoint` to an address of this host and a port, such as localhost:4317",
                );
            }
        };
        match TcpListener::bind(&*addresses) {
            Ok(_) => self.exposure_check(&addresses),
            Err(error) => self.bind_failure_check(&addresses, &error),
        }
    }

    fn exposure_check(&self, addresses: &[SocketAddr]) -> Check {
        let endpoint = &self.endpoint;
        let check = Check::new(self.name, format!("{endpoint} is free"));
        match self.is_exposed(addresses) {
            true => check.warn(
                "every host that reaches this one can connect, without a password and unencrypted",
                "set `endpoint` to one address, such as localhost for clients on this host, or set `tls` and `auth`",
            ),
            false => check,
        }
    }

    /// Whether a server at these addresses is open to everyone, though it matters who connects.
    pub fn is_exposed(&self, addresses: &[SocketAddr]) -> bool {
        let is_public = addresses.iter().any(|it| it.ip().is_unspecified());
        is_public && self.is_sensitive && !self.is_protected
    }

    fn bind_failure_check(&self, addresses: &[SocketAddr], error: &io::Error) -> Check {
        let endpoint = &self.endpoint;
        let port = addresses.first().map_or(0, SocketAddr::port);
        match error.kind() {
            io::ErrorKind::AddrInUse => self.in_use_check(port, owner(port)),
            io::ErrorKind::PermissionDenied => {
                Check::new(self.name, format!("{endpoint}: {error}")).fail(
                    NOT_STARTED,
                    "ports below 1024 need CAP_NET_BIND_SERVICE: set AmbientCapabilities=CAP_NET_BIND_SERVICE in the unit, start as root, or choose another port",
                )
            }
            io::ErrorKind::AddrNotAvailable => {
                Check::new(self.name, format!("{endpoint}: no interface has this address")).fail(
                    NOT_STARTED,
                    "set `endpoint` to an address of this host (`ip -brief address` lists them)",
                )
            }
            _ => Check::new(self.name, format!("{endpoint}: {error}")).fail(
                NOT_STARTED,
                "set `endpoint` to an address of this host and a free port",
            ),
        }
    }

    fn in_use_check(&self, port: u16, owner: Option<Owner>) -> Check {
        let endpoint = &self.endpoint;
        let user = match &owner {
            Some(Owner { pid, name }) => format!("{name} (PID {pid})"),
            None => "another process".to_owned(),
        };
        let check = Check::new(self.name, format!("{endpoint} is in use by {user}"));
        let fix = match owner {
            Some(_) => "stop that process, or change `endpoint`".to_owned(),
            None => format!(
                "find it, as root, with: ss -ltnp 'sport = :{port}'; stop it, or change `endpoint`"
            ),
        };
        match owner {
            _ if self.may_move => check.warn("profcol serves on another free port", fix),
            Some(Owner { name, .. }) if name == OWN_NAME => check.warn(
                "a second profcol with this configuration does not start",
                "nothing, if that process runs this configuration; otherwise change `endpoint`",
            ),
            _ => check.fail(NOT_STARTED, fix),
        }
    }
}

const OWN_NAME: &str = "profcol";

/// All IP addresses without a host.
fn addresses(endpoint: &str) -> io::Result<Vec<SocketAddr>> {
    let all = |ips: [IpAddr; 2], port: &str| {
        let port = port.parse().map_err(io::Error::other)?;
        Ok(ips.map(|ip| SocketAddr::new(ip, port)).to_vec())
    };
    if let Some(port) = endpoint.strip_prefix(':') {
        return all(
            [Ipv6Addr::UNSPECIFIED.into(), Ipv4Addr::UNSPECIFIED.into()],
            port,
        );
    }
    let found = endpoint.to_socket_addrs().map(Iterator::collect);
    match (found, endpoint.strip_prefix("localhost:")) {
        // Servers listen on loopback, too, where `/etc/hosts` is missing.
        (Err(_), Some(port)) => all(
            [Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()],
            port,
        ),
        (found, _) => found,
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Owner {
    pid: u32,
    name: String,
}

/// The process that listens on a TCP port, if it can be inspected.
fn owner(port: u16) -> Option<Owner> {
    let tables = ["/proc/net/tcp", "/proc/net/tcp6"].map(fs::read_to_string);
    let sockets: Vec<String> = tables
        .iter()
        .flatten()
        .flat_map(|table| table.lines())
        .filter_map(|line| listening_inode(line, port))
        .map(|inode| format!("socket:[{inode}]"))
        .collect();
    if sockets.is_empty() {
        return None;
    }
    let mut processes = fs::read_dir("/proc").ok()?.flatten().filter_map(|entry| {
        let pid = entry.file_name().to_str()?.parse::<u32>().ok()?;
        Some((pid, entry.path()))
    });
    let (pid, directory) = processes.find(|(_, directory)| {
        let files = fs::read_dir(directory.join("fd")).into_iter().flatten();
        let mut targets = files
            .flatten()
            .filter_map(|it| fs::read_link(it.path()).ok());
        targets.any(|target| sockets.iter().any(|socket| target == Path::new(socket)))
    })?;
    let name = fs::read_to_string(directory.join("comm")).ok()?;
    Some(Owner {
        pid,
        name: name.trim_end().to_owned(),
    })
}

/// The inode of a listening socket on `port`, from a line of `/proc/net/tcp`.
fn listening_inode(line: &str, port: u16) -> Option<&str> {
    const LISTEN: &str = "0A";
    let mut fields = line.split_ascii_whitespace();
    let local = fields.nth(1)?;
    let state = fields.nth(1)?;
    let local_port = u16::from_str_radix(local.rsplit_once(':')?.1, 16).ok()?;
    if local_port != port || state != LISTEN {
        return None;
    }
    fields.nth(5)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Severity;

    fn listening(endpoint: impl Into<String>) -> Listening {
        Listening::new("listen", &endpoint.into(), false, false)
    }

    #[tokio::test]
    async fn a_port_in_use_is_reported_with_its_owner() {
        let taken = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = taken.local_addr().unwrap().port();
        let check = listening(format!("127.0.0.1:{port}"))
            .check()
            .await
            .remove(0);
        let own = fs::read_to_string("/proc/self/comm").unwrap();
        let expected = format!(
            "127.0.0.1:{port} is in use by {} (PID {})",
            own.trim_end(),
            std::process::id()
        );
        assert_eq!(check.found, expected);
        assert_eq!(check.severity(), Some(Severity::Failure));
        drop(taken);
        let check = listening(format!("127.0.0.1:{port}"))
            .check()
            .await
            .remove(0);
        assert_eq!(check.severity(), None, "{check:?}");
    }

    #[test]
    fn the_running_service_and_a_port_that_moves_are_no_failures() {
        let own = Owner {
            pid: 7,
            name: "profcol".to_owned(),
        };
        let port = listening("localhost:4317");
        let severity = |it: &Listening, owner| it.in_use_check(4317, owner).severity();
        assert_eq!(severity(&port, Some(own)), Some(Severity::Warning));
        assert_eq!(severity(&port, None), Some(Severity::Failure));
        let fix = port.in_use_check(4317, None).problem.unwrap().fix;
        assert!(fix.contains("ss -ltnp 'sport = :4317'"), "{fix}");
        let page = Listening {
            may_move: true,
            ..port
        };
        assert_eq!(severity(&page, None), Some(Severity::Warning));
    }

    #[tokio::test]
    async fn all_interfaces_without_protection_warn() {
        for (endpoint, is_protected, expected) in [
            ("0.0.0.0:0", false, Some(Severity::Warning)),
            (":0", false, Some(Severity::Warning)),
            ("0.0.0.0:0", true, None),
            ("127.0.0.1:0", false, None),
        ] {
            let listening = Listening {
                is_protected,
                ..listening(endpoint)
            };
            let check = listening.check().await.remove(0);
            assert_eq!(check.severity(), expected, "{check:?}");
        }
    }

    #[tokio::test]
    async fn an_address_of_another_host_fails() {
        // TEST-NET-1
        let check = listening("192.0.2.1:4317").check().await.remove(0);
        assert!(check.found.contains("no interface"), "{check:?}");
        assert_eq!(check.severity(), Some(Severity::Failure));
    }

    #[test]
    fn a_missing_capability_is_named() {
        let denied = io::Error::from(io::ErrorKind::PermissionDenied);
        let check = listening("localhost:80").bind_failure_check(&[], &denied);
        let fix = check.problem.unwrap().fix;
        assert!(fix.contains("CAP_NET_BIND_SERVICE"), "{fix}");
    }
}
