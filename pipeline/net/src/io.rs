//! The byte streams under HTTP: TCP or Unix, with or without TLS, on either side.

use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::pin::Pin;
use std::task::{Context, Poll};

use hyper_util::client::legacy::connect::{Connected, Connection};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_rustls::TlsStream;

use crate::socket::Socket;

/// Where a peer is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PeerAddr {
    Tcp(SocketAddr),
    /// The path of the listening socket: clients of Unix sockets have no address of their own.
    Unix(PathBuf),
}

impl std::fmt::Display for PeerAddr {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            PeerAddr::Tcp(addr) => addr.fmt(f),
            PeerAddr::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

/// A connection as HTTP sees it.
#[derive(Debug)]
pub(crate) enum Stream {
    Plain(Socket),
    /// To a proxy that takes whole URLs and forwards requests.
    Forwarded(Socket),
    Tls(Box<TlsStream<Socket>>),
}

macro_rules! inner {
    ($self:ident, $stream:ident => $call:expr, $($variant:path),+) => {
        match $self.get_mut() {
            $($variant($stream) => { let $stream = Pin::new($stream); $call })+
        }
    };
}

impl AsyncRead for Stream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        inner!(self, stream => stream.poll_read(cx, buf), Stream::Plain, Stream::Forwarded, Stream::Tls)
    }
}

impl AsyncWrite for Stream {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        inner!(self, stream => stream.poll_write(cx, buf), Stream::Plain, Stream::Forwarded, Stream::Tls)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        inner!(self, stream => stream.poll_write_vectored(cx, bufs), Stream::Plain, Stream::Forwarded, Stream::Tls)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        inner!(self, stream => stream.poll_flush(cx), Stream::Plain, Stream::Forwarded, Stream::Tls)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        inner!(self, stream => stream.poll_shutdown(cx), Stream::Plain, Stream::Forwarded, Stream::Tls)
    }
}

/// What hyper-util's pool wants to know.
impl Connection for Stream {
    fn connected(&self) -> Connected {
        match self {
            Stream::Plain(_) => Connected::new(),
            Stream::Forwarded(_) => Connected::new().proxy(true),
            Stream::Tls(stream) if stream.get_ref().1.alpn_protocol() == Some(b"h2") => {
                Connected::new().negotiated_h2()
            }
            Stream::Tls(_) => Connected::new(),
        }
    }
}
