//! Binds a TCP port or a Unix socket.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};

use socket2::{Domain, Protocol, Socket as RawSocket, Type};
use tokio::net::{TcpListener, UnixListener};

use super::sockets::{ListenAddr, ListeningSockets};
use crate::EndpointError;
use crate::io::{PeerAddr, SystemError};
use crate::socket::{Buffers, Socket};

/// Listen backlog; the kernel caps it at `net.core.somaxconn`, 4096 by default.
const BACKLOG: i32 = 4096;

/// Failed to listen on an address. Worded as in Go, for searchability.
#[derive(Debug, thiserror::Error)]
pub enum BindError {
    #[error("listen {network} {endpoint}: bind: {error}{hint}")]
    Bind {
        network: &'static str,
        endpoint: String,
        #[source]
        error: SystemError,
        hint: &'static str,
    },
    #[error("listen {network} {endpoint}: {error}")]
    Address {
        network: &'static str,
        endpoint: String,
        #[source]
        error: AddressError,
    },
}

/// Why an endpoint has no address to listen on.
#[derive(Debug, thiserror::Error)]
pub enum AddressError {
    #[error(transparent)]
    Endpoint(#[from] EndpointError),
    #[error("lookup {host}: {error}")]
    Lookup {
        host: String,
        #[source]
        error: io::Error,
    },
    #[error("lookup {0}: no suitable address")]
    Unsuitable(String),
    #[error(transparent)]
    Io(#[from] io::Error),
}

impl BindError {
    /// Whether the address is in use.
    pub fn is_address_in_use(&self) -> bool {
        matches!(self, Self::Bind { error, .. } if error.0.kind() == io::ErrorKind::AddrInUse)
    }
}

/// A bound address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BoundAddr {
    Tcp(SocketAddr),
    Unix(PathBuf),
}

impl std::fmt::Display for BoundAddr {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            BoundAddr::Tcp(addr) => addr.fmt(f),
            BoundAddr::Unix(path) => path.display().fmt(f),
        }
    }
}

/// A listening socket. A Unix socket's file is removed when this is dropped, unless the socket is left to the next server.
#[derive(Debug)]
pub(super) struct Listener {
    socket: ListenSocket,
    address: ListenAddr,
    sockets: ListeningSockets,
}

#[derive(Debug)]
enum ListenSocket {
    Tcp(TcpListener),
    Unix(UnixListener, PathBuf),
}

impl Drop for Listener {
    fn drop(&mut self) {
        let duplicate = || self.socket.as_fd().try_clone_to_owned().ok();
        let is_left = self.sockets.leave(&self.address, duplicate);
        if let ListenSocket::Unix(_, path) = &self.socket
            && !is_left
        {
            // It may be gone or replaced by another process; both are fine.
            let _ = std::fs::remove_file(path);
        }
    }
}

impl AsFd for ListenSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            ListenSocket::Tcp(listener) => listener.as_fd(),
            ListenSocket::Unix(listener, _) => listener.as_fd(),
        }
    }
}

impl Listener {
    /// Listens on the socket that the last server on this address has left, or on a new one.
    pub fn bind(
        transport: Transport,
        endpoint: &str,
        sockets: &ListeningSockets,
    ) -> Result<Listener, BindError> {
        let (address, socket) = match transport {
            Transport::Tcp | Transport::Tcp4 | Transport::Tcp6 => {
                let (address, listener) = bind_tcp(transport, endpoint, sockets)?;
                (address, ListenSocket::Tcp(listener))
            }
            Transport::Unix => bind_unix(endpoint, sockets)?,
        };
        let sockets = sockets.clone();
        Ok(Listener {
            socket,
            address,
            sockets,
        })
    }

    pub fn local_addr(&self) -> Result<BoundAddr, BindError> {
        match &self.socket {
            ListenSocket::Tcp(listener) => {
                let addr = listener.local_addr().map_err(|error| BindError::Address {
                    network: "tcp",
                    endpoint: String::new(),
                    error: error.into(),
                })?;
                Ok(BoundAddr::Tcp(addr))
            }
            ListenSocket::Unix(_, path) => Ok(BoundAddr::Unix(path.clone())),
        }
    }

    pub async fn accept(&self, buffers: Buffers) -> io::Result<(Socket, PeerAddr)> {
        match &self.socket {
            ListenSocket::Tcp(listener) => {
                let (stream, addr) = listener.accept().await?;
                // Responses are small and awaited. If this fails, the connection is already gone.
                let _ = stream.set_nodelay(true);
                Ok((Socket::tcp(stream, buffers), PeerAddr::Tcp(addr)))
            }
            ListenSocket::Unix(listener, path) => {
                let (stream, _) = listener.accept().await?;
                Ok((Socket::unix(stream, buffers), PeerAddr::Unix(path.clone())))
            }
        }
    }
}

/// Values of `transport`.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    serde::Serialize,
    serde::Deserialize,
    schemars::JsonSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum Transport {
    #[default]
    Tcp,
    Tcp4,
    Tcp6,
    Unix,
}

impl Transport {
    fn network(self) -> &'static str {
        match self {
            Transport::Tcp => "tcp",
            Transport::Tcp4 => "tcp4",
            Transport::Tcp6 => "tcp6",
            Transport::Unix => "unix",
        }
    }
}

fn bind_tcp(
    transport: Transport,
    endpoint: &str,
    sockets: &ListeningSockets,
) -> Result<(ListenAddr, TcpListener), BindError> {
    let network = transport.network();
    let addr = resolve(transport, endpoint).map_err(|error| BindError::Address {
        network,
        endpoint: endpoint.to_owned(),
        error,
    })?;
    let address = ListenAddr::Tcp {
        address: addr,
        is_dual: is_dual(transport, addr),
    };
    let listener = match sockets.take(&address) {
        Some(left) => TcpListener::from_std(left.into()),
        None => listen_tcp(transport, addr),
    };
    let listener = listener.map_err(|error| BindError::Bind {
        network,
        endpoint: addr.to_string(),
        hint: hint(&error),
        error: error.into(),
    })?;
    Ok((address, listener))
}

/// Resolves the endpoint to one address, like Go: no host means all interfaces in both families; for a name with
/// several addresses, the first IPv4 address is used.
fn resolve(transport: Transport, endpoint: &str) -> Result<SocketAddr, AddressError> {
    let (host, port) = split_host_port(endpoint)?;
    let host = match (host, transport) {
        ("", Transport::Tcp4) => "0.0.0.0",
        ("", _) => "::",
        (host, _) => host,
    };
    let found = (host, port).to_socket_addrs().map(Iterator::collect);
    let all: Vec<_> = or_loopback(host, port, found).map_err(|error| AddressError::Lookup {
        host: host.to_owned(),
        error,
    })?;
    let first = |v4: bool| all.iter().copied().find(|addr| addr.is_ipv4() == v4);
    let found = match transport {
        Transport::Tcp4 => first(true),
        Transport::Tcp6 => first(false),
        _ => first(true).or_else(|| first(false)),
    };
    found.ok_or_else(|| AddressError::Unsuitable(host.to_owned()))
}

/// The lookup result, or loopback for `localhost` (RFC 6761) on systems without `/etc/hosts`, such as container images.
pub(crate) fn or_loopback<E>(
    host: &str,
    port: u16,
    found: Result<Vec<SocketAddr>, E>,
) -> Result<Vec<SocketAddr>, E> {
    match found {
        Err(_) if host == "localhost" => Ok(vec![
            (Ipv4Addr::LOCALHOST, port).into(),
            (Ipv6Addr::LOCALHOST, port).into(),
        ]),
        found => found,
    }
}

/// Splits `host:port`; the host of `[::1]:80` is without brackets.
pub(crate) fn split_host_port(endpoint: &str) -> Result<(&str, u16), EndpointError> {
    let (host, port) = endpoint
        .rsplit_once(':')
        .ok_or_else(|| EndpointError::MissingPort(endpoint.to_owned()))?;
    let port = port
        .parse()
        .map_err(|_| EndpointError::InvalidPort(port.to_owned()))?;
    match host.strip_prefix('[').map(|host| host.strip_suffix(']')) {
        Some(Some(host)) => Ok((host, port)),
        None if !host.contains(':') => Ok((host, port)),
        _ => Err(EndpointError::MissingBrackets(endpoint.to_owned())),
    }
}

/// Whether the socket accepts connections over IPv4, too.
fn is_dual(transport: Transport, addr: SocketAddr) -> bool {
    transport == Transport::Tcp && addr.ip().is_unspecified() && addr.is_ipv6()
}

fn listen_tcp(transport: Transport, addr: SocketAddr) -> io::Result<TcpListener> {
    let everywhere = is_dual(transport, addr);
    let socket = match RawSocket::new(Domain::for_address(addr), Type::STREAM, Some(Protocol::TCP))
    {
        // Without IPv6, "all interfaces" means IPv4.
        Err(_) if everywhere => {
            let v4 = SocketAddr::from(([0, 0, 0, 0], addr.port()));
            return listen_tcp(Transport::Tcp4, v4);
        }
        other => other?,
    };
    if addr.is_ipv6() {
        socket.set_only_v6(!everywhere)?;
    }
    socket.set_reuse_address(true)?;
    socket.set_nonblocking(true)?;
    socket.bind(&addr.into())?;
    socket.listen(BACKLOG)?;
    TcpListener::from_std(socket.into())
}

fn bind_unix(
    endpoint: &str,
    sockets: &ListeningSockets,
) -> Result<(ListenAddr, ListenSocket), BindError> {
    let path = Path::new(endpoint.strip_prefix("unix://").unwrap_or(endpoint));
    let address = ListenAddr::Unix(path.to_owned());
    let listener = match sockets.take(&address) {
        Some(left) => UnixListener::from_std(left.into()),
        None => {
            remove_stale(path);
            UnixListener::bind(path)
        }
    };
    let listener = listener.map_err(|error| BindError::Bind {
        network: "unix",
        endpoint: endpoint.to_owned(),
        hint: hint(&error),
        error: error.into(),
    })?;
    Ok((address, ListenSocket::Unix(listener, path.to_owned())))
}

/// Removes a stale socket file: one without a listener.
fn remove_stale(path: &Path) {
    use std::os::unix::fs::FileTypeExt;
    let is_socket = std::fs::symlink_metadata(path).is_ok_and(|meta| meta.file_type().is_socket());
    if is_socket
        && let Err(error) = std::os::unix::net::UnixStream::connect(path)
        && error.kind() == io::ErrorKind::ConnectionRefused
    {
        // If this fails, bind reports the error.
        let _ = std::fs::remove_file(path);
    }
}

fn hint(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::AddrInUse => {
            " (another process listens on it: stop it, or choose another address)"
        }
        io::ErrorKind::AddrNotAvailable => {
            " (no interface of this host has that address; use 0.0.0.0 for all of them, or localhost)"
        }
        io::ErrorKind::PermissionDenied => {
            " (ports below 1024 need CAP_NET_BIND_SERVICE; a Unix socket needs a writable directory)"
        }
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bind(transport: Transport, endpoint: &str) -> Result<Listener, BindError> {
        Listener::bind(transport, endpoint, &ListeningSockets::default())
    }

    #[tokio::test]
    async fn the_error_names_a_port_in_use() {
        let first = bind(Transport::Tcp, "127.0.0.1:0").unwrap();
        let addr = first.local_addr().unwrap().to_string();
        let error = bind(Transport::Tcp, &addr).unwrap_err().to_string();
        let expected = format!("listen tcp {addr}: bind: address already in use");
        assert!(error.starts_with(&expected), "{error}");
        assert!(error.contains("choose another address"), "{error}");
    }

    #[test]
    fn endpoints_resolve_as_in_go() {
        for (transport, endpoint, expected) in [
            (Transport::Tcp, "localhost:4317", Ok("127.0.0.1:4317")),
            (Transport::Tcp, ":4317", Ok("[::]:4317")),
            (Transport::Tcp4, ":4317", Ok("0.0.0.0:4317")),
            (Transport::Tcp, "0.0.0.0:1", Ok("0.0.0.0:1")),
            (Transport::Tcp6, "[::1]:1", Ok("[::1]:1")),
            (
                Transport::Tcp4,
                "[::1]:1",
                Err("lookup ::1: no suitable address"),
            ),
            (
                Transport::Tcp,
                "localhost",
                Err("address localhost: missing port in address"),
            ),
        ] {
            let got = resolve(transport, endpoint).map(|addr| addr.to_string());
            let got = got.map_err(|error| error.to_string());
            assert_eq!(
                got.as_deref().map_err(String::as_str),
                expected,
                "{endpoint}"
            );
        }
    }

    #[test]
    fn localhost_needs_no_dns() {
        let found = or_loopback("localhost", 4317, Err("try again")).unwrap();
        let found: Vec<_> = found.iter().map(ToString::to_string).collect();
        assert_eq!(found, ["127.0.0.1:4317", "[::1]:4317"]);
        let other = or_loopback("backend", 4317, Err("try again"));
        assert_eq!(other, Err("try again"));
        // The lookup result takes precedence.
        let resolved = vec!["127.0.0.2:1".parse().unwrap()];
        let found = or_loopback("localhost", 1, Ok::<_, &str>(resolved.clone()));
        assert_eq!(found, Ok(resolved));
    }

    #[tokio::test]
    async fn replaces_a_stale_unix_socket_but_not_one_in_use() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("otlp.sock");
        let endpoint = path.to_str().unwrap();
        drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
        let living = bind(Transport::Unix, endpoint).unwrap();
        let error = bind(Transport::Unix, endpoint).unwrap_err().to_string();
        assert!(error.contains("address already in use"), "{error}");
        drop(living);
        assert!(!path.exists());
    }

    #[tokio::test]
    async fn a_socket_is_left_to_the_next_server_only_during_a_reload() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("otlp.sock");
        let free = bind(Transport::Tcp, "127.0.0.1:0").unwrap();
        let tcp = free.local_addr().unwrap().to_string();
        drop(free);
        for (transport, endpoint) in [
            (Transport::Tcp, tcp.as_str()),
            (Transport::Unix, path.to_str().unwrap()),
        ] {
            let connect = || match transport {
                Transport::Unix => std::os::unix::net::UnixStream::connect(endpoint).is_ok(),
                _ => std::net::TcpStream::connect(endpoint).is_ok(),
            };
            let sockets = ListeningSockets::default();
            let first = Listener::bind(transport, endpoint, &sockets).unwrap();
            let keep = sockets.keep();
            drop(first);
            assert!(connect(), "it waits in the backlog");
            let second = Listener::bind(transport, endpoint, &sockets).unwrap();
            assert!(second.accept(Buffers::default()).await.is_ok());
            drop(keep);
            assert!(connect());
            let keep = sockets.keep();
            drop(second);
            drop(keep);
            assert!(!connect(), "nobody took it");
            drop(Listener::bind(transport, endpoint, &sockets).unwrap());
            assert!(!connect(), "there is no reload");
        }
        assert!(!path.exists());
    }
}
