//! The byte streams under HTTP: TCP or Unix, with or without TLS, on either side.

use std::fmt;
use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};

use hyper_util::client::legacy::connect::{Connected, Connection};
use rustls::AlertDescription;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_rustls::TlsStream;

use crate::hint::Hint;
use crate::socket::Socket;

/// The address of a peer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PeerAddr {
    Tcp(SocketAddr),
    /// The path of the listening socket: clients of Unix sockets have no address of their own.
    Unix(PathBuf),
}

impl PeerAddr {
    /// `None` for Unix sockets.
    pub fn ip(&self) -> Option<std::net::IpAddr> {
        match self {
            PeerAddr::Tcp(addr) => Some(addr.ip()),
            PeerAddr::Unix(_) => None,
        }
    }
}

impl fmt::Display for PeerAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
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
    /// Connection to a forwarding proxy, which takes absolute URLs.
    Forwarded(Socket),
    Tls(Box<TlsStream<Socket>>, ReceivedAlert),
}

/// The alert by which the peer ended the connection. HTTP libraries pass on only the text of the error.
#[derive(Clone, Debug, Default)]
pub(crate) struct ReceivedAlert(Arc<OnceLock<AlertDescription>>);

impl ReceivedAlert {
    /// What a client should check.
    pub fn hint(&self) -> Option<Hint> {
        self.0.get().copied().and_then(Hint::from_alert)
    }
}

macro_rules! inner {
    ($self:ident, $stream:ident => $call:expr, $($variant:path),+) => {
        match &mut *$self {
            $($variant($stream, ..) => { let $stream = Pin::new($stream); $call })+
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
        result.map_err(|error| me.noted(error))
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
    pub fn tls(stream: impl Into<TlsStream<Socket>>) -> Self {
        Stream::Tls(Box::new(stream.into()), ReceivedAlert::default())
    }

    pub fn received_alert(&self) -> ReceivedAlert {
        match self {
            Stream::Tls(_, alert) => alert.clone(),
            Stream::Plain(_) | Stream::Forwarded(_) => ReceivedAlert::default(),
        }
    }

    /// With TLS 1.3 a server rejects a client certificate only after the client finished the handshake. Writes then
    /// fail without a reason; the alert with the reason must be read.
    fn reason_of(&mut self, error: io::Error, cx: &mut Context<'_>) -> io::Error {
        let Stream::Tls(stream, _) = self else {
            return error;
        };
        let mut byte = [0];
        match Pin::new(stream).poll_read(cx, &mut ReadBuf::new(&mut byte)) {
            Poll::Ready(Err(reason)) if alert_in(&reason).is_some() => self.noted(reason),
            _ => error,
        }
    }

    fn noted(&self, error: io::Error) -> io::Error {
        if let (Stream::Tls(_, received), Some(alert)) = (self, alert_in(&error)) {
            // Only the first ended the connection.
            let _ = received.0.set(alert);
        }
        error
    }
}

fn alert_in(error: &io::Error) -> Option<AlertDescription> {
    match error.get_ref()?.downcast_ref()? {
        rustls::Error::AlertReceived(alert) => Some(*alert),
        _ => None,
    }
}

/// Required by hyper-util's pool.
impl Connection for Stream {
    fn connected(&self) -> Connected {
        match self {
            Stream::Plain(_) => Connected::new(),
            Stream::Forwarded(_) => Connected::new().proxy(true),
            Stream::Tls(stream, alert) => {
                let connected = Connected::new().extra(alert.clone());
                match stream.get_ref().1.alpn_protocol() {
                    Some(b"h2") => connected.negotiated_h2(),
                    _ => connected,
                }
            }
        }
    }
}

/// An error of the operating system, in the words that Go has for it, which operators search for.
#[derive(Clone, Debug, thiserror::Error)]
pub struct SystemError(#[source] pub(crate) Arc<io::Error>);

impl From<io::Error> for SystemError {
    fn from(error: io::Error) -> Self {
        Self(Arc::new(error))
    }
}

impl fmt::Display for SystemError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = self.0.to_string();
        let text = text.split(" (os error").next().unwrap_or(&text);
        f.write_str(&text.to_lowercase())
    }
}
