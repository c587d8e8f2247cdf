//! Opens one connection: DNS lookup, connect, proxy tunnel, TLS handshake.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use socket2::{SockRef, TcpKeepalive};
use tokio::net::{TcpStream, UnixStream, lookup_host};
use tokio::time::{Instant, timeout, timeout_at};

use super::error::{CONNECT_TIMEOUT, ConnectError, LookupError, ProxyError, TlsFailure};
use super::proxy::{Proxy, tunnel};
use crate::io::Stream;
use crate::server::or_loopback;
use crate::socket::{Buffers, Socket};
use crate::tls::ClientSide;

/// TCP keepalive interval.
const TCP_KEEPALIVE: Duration = Duration::from_secs(15);

/// An address to connect to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Address {
    Tcp(SocketAddr),
    Unix(PathBuf),
}

/// All addresses of a host, in the resolver's order.
pub(super) async fn lookup(host: &str, port: u16) -> Result<Vec<SocketAddr>, ConnectError> {
    lookup_within(CONNECT_TIMEOUT, host, port).await
}

/// All addresses of a host, in the resolver's order, unless the lookup takes longer than `limit`.
pub async fn lookup_within(
    limit: Duration,
    host: &str,
    port: u16,
) -> Result<Vec<SocketAddr>, ConnectError> {
    let failed = |error| ConnectError::Lookup {
        host: host.to_owned(),
        error,
    };
    let found = timeout(limit, lookup_host((host, port))).await;
    let found = found.map_err(|_| failed(LookupError::Timeout))?;
    let found = found.map(Iterator::collect);
    let addresses: Vec<_> = or_loopback(host, port, found)
        .map_err(|error| failed(LookupError::Failed(error.into())))?;
    if addresses.is_empty() {
        return Err(failed(LookupError::NoAddress));
    }
    Ok(addresses)
}

/// Connects to one address; with `tls`, verifies the given host name.
pub(super) async fn connect(
    address: &Address,
    endpoint: &str,
    tls: Option<(&ClientSide, &str)>,
    buffers: Buffers,
) -> Result<Stream, ConnectError> {
    within_limit(endpoint, async {
        let socket = open(address, buffers)
            .await
            .map_err(|error| refused(endpoint, error))?;
        secure(socket, endpoint, tls).await
    })
    .await
}

/// Connects to a host, trying each of its addresses.
pub(super) async fn connect_host(
    host: &str,
    port: u16,
    endpoint: &str,
    tls: Option<(&ClientSide, &str)>,
    buffers: Buffers,
) -> Result<Stream, ConnectError> {
    let socket = within_limit(endpoint, open_any(host, port, endpoint, buffers)).await?;
    within_limit(endpoint, secure(socket, endpoint, tls)).await
}

/// Connects through a proxy: by a tunnel, or to the proxy itself if it forwards requests.
pub(super) async fn connect_through(
    proxy: &Proxy,
    endpoint: &str,
    forwarding: bool,
    tls: Option<(&ClientSide, &str)>,
    buffers: Buffers,
) -> Result<Stream, ConnectError> {
    let name = format!("{}:{}", proxy.host, proxy.port);
    let failed = |error: ProxyError| ConnectError::Proxy {
        endpoint: endpoint.to_owned(),
        proxy: name.clone(),
        error: error.into(),
    };
    within_limit(endpoint, async {
        let mut socket = open_any(&proxy.host, proxy.port, &name, buffers)
            .await
            .map_err(|error| failed(error.into()))?;
        if forwarding {
            return Ok(Stream::Forwarded(socket));
        }
        tunnel(&mut socket, endpoint, proxy).await.map_err(failed)?;
        secure(socket, endpoint, tls).await
    })
    .await
}

async fn within_limit<T>(
    endpoint: &str,
    work: impl Future<Output = Result<T, ConnectError>>,
) -> Result<T, ConnectError> {
    let late = ConnectError::Timeout {
        endpoint: endpoint.to_owned(),
    };
    timeout(CONNECT_TIMEOUT, work).await.unwrap_or(Err(late))
}

async fn open_any(
    host: &str,
    port: u16,
    endpoint: &str,
    buffers: Buffers,
) -> Result<Socket, ConnectError> {
    let addresses = lookup(host, port).await?;
    // A silent address must leave time for the rest.
    let share = CONNECT_TIMEOUT / u32::try_from(addresses.len()).unwrap_or(u32::MAX);
    let mut last = ConnectError::Timeout {
        endpoint: endpoint.to_owned(),
    };
    for address in addresses {
        match timeout_at(
            Instant::now() + share,
            open(&Address::Tcp(address), buffers),
        )
        .await
        {
            Ok(Ok(socket)) => return Ok(socket),
            Ok(Err(error)) => last = refused(endpoint, error),
            Err(_) => {}
        }
    }
    Err(last)
}

async fn open(address: &Address, buffers: Buffers) -> io::Result<Socket> {
    match address {
        Address::Unix(path) => UnixStream::connect(path)
            .await
            .map(|stream| Socket::unix(stream, buffers)),
        Address::Tcp(address) => {
            let stream = TcpStream::connect(address).await?;
            stream.set_nodelay(true)?;
            let keepalive = TcpKeepalive::new()
                .with_time(TCP_KEEPALIVE)
                .with_interval(TCP_KEEPALIVE);
            SockRef::from(&stream).set_tcp_keepalive(&keepalive)?;
            Ok(Socket::tcp(stream, buffers))
        }
    }
}

fn refused(endpoint: &str, error: io::Error) -> ConnectError {
    ConnectError::Connect {
        endpoint: endpoint.to_owned(),
        error: error.into(),
    }
}

async fn secure(
    socket: Socket,
    endpoint: &str,
    tls: Option<(&ClientSide, &str)>,
) -> Result<Stream, ConnectError> {
    let Some((tls, host)) = tls else {
        return Ok(Stream::Plain(socket));
    };
    let failed = |error| ConnectError::Tls {
        endpoint: endpoint.to_owned(),
        error,
    };
    let name = tls
        .server_name(host)
        .map_err(|error| failed(TlsFailure::Name(error.into())))?;
    let handshake = tls.connector().connect(name, socket).await;
    handshake
        .map(Stream::tls)
        .map_err(|error| failed(TlsFailure::Handshake(error.into())))
}
