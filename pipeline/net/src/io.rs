//! The byte streams under HTTP: TCP or Unix, with or without TLS, on either side.

use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::pin::Pin;
use std::task::{Context, Poll};

use hyper_util::client::legacy::connect::{Connected, Connection};
use rustls::AlertDescription;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_rustls::TlsStream;

use crate::socket::Socket;
use crate::tls::alert_hint;

/// Where a peer is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PeerAddr {
    Tcp(SocketAddr),
    /// The path of the listening socket: clients of Unix sockets have no address of their own.
    Unix(PathBuf),
}

impl PeerAddr {
    /// None for a peer on this machine's file system.
    pub fn ip(&self) -> Option<std::net::IpAddr> {
        match self {
            PeerAddr::Tcp(addr) => Some(addr.ip()),
            PeerAddr::Unix(_) => None,
        }
    }
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
        match &mut *$self {
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
        let me = self.get_mut();
        let result = inner!(me, stream => stream.poll_read(cx, buf), Stream::Plain, Stream::Forwarded, Stream::Tls);
        result.map_err(|error| me.with_hint(error))
    }
}

impl AsyncWrite for Stream {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        let me = self.get_mut();
        let result = inner!(me, stream => stream.poll_write(cx, buf), Stream::Plain, Stream::Forwarded, Stream::Tls);
        result.map_err(|error| me.reason_of(error, cx))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let me = self.get_mut();
        let result = inner!(me, stream => stream.poll_write_vectored(cx, bufs), Stream::Plain, Stream::Forwarded, Stream::Tls);
        result.map_err(|error| me.reason_of(error, cx))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let me = self.get_mut();
        let result = inner!(me, stream => stream.poll_flush(cx), Stream::Plain, Stream::Forwarded, Stream::Tls);
        result.map_err(|error| me.reason_of(error, cx))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let me = self.get_mut();
        inner!(me, stream => stream.poll_shutdown(cx), Stream::Plain, Stream::Forwarded, Stream::Tls)
    }
}

impl Stream {
    /// With TLS 1.3 a server refuses a client's certificate only after the client is done with the
    /// handshake. Writing then fails for no reason that is told; the reason waits to be read.
    fn reason_of(&mut self, error: io::Error, cx: &mut Context<'_>) -> io::Error {
        let Stream::Tls(stream) = self else {
            return error;
        };
        let mut byte = [0];
        match Pin::new(stream).poll_read(cx, &mut ReadBuf::new(&mut byte)) {
            Poll::Ready(Err(reason)) if alert_in(&reason).is_some() => self.with_hint(reason),
            _ => error,
        }
    }

    /// As text, since HTTP libraries hand on no more than that.
    fn with_hint(&self, error: io::Error) -> io::Error {
        let is_client =
            matches!(self, Stream::Tls(stream) if matches!(**stream, TlsStream::Client(_)));
        match alert_in(&error).map(alert_hint) {
            Some(hint) if is_client && !hint.is_empty() => {
                io::Error::new(error.kind(), format!("{error}{hint}"))
            }
            _ => error,
        }
    }
}

fn alert_in(error: &io::Error) -> Option<AlertDescription> {
    match error.get_ref()?.downcast_ref()? {
        rustls::Error::AlertReceived(alert) => Some(*alert),
        _ => None,
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
