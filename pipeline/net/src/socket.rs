//! A buffered socket that saves system calls.
//!
//! grpc-go sends and accepts frames of 16 KiB, and `h2` reads and writes frame by frame. This socket reads ahead and
//! coalesces large writes, which costs a copy within the cache but saves more. Forwarding messages from a Go client to
//! a Go server, 4 connections, medians of one run:
//!
//! ```text
//!                                  frame by frame    with this
//! system calls, 182 KB message           37.6            7.1      (14.0 -> 4.3 writes, 23 -> 2 reads)
//! CPU, 182 KB message                    0.26 ms         0.22 ms
//! CPU, 791 KB message                    0.92 ms         0.79 ms
//! ```
//!
//! Idle connections hold no buffer.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf, BytesMut};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, UnixStream};
use tokio_util::io::{poll_read_buf, poll_write_buf};

/// Writes of this size and up come in series: more of the message follows immediately.
const LARGE: usize = 16 << 10;

/// How much to read ahead if a large frame is likely: its head; the rest is read in place without a copy.
const HEAD: usize = 4 << 10;

/// Read-ahead and write-coalescing sizes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Buffers {
    pub read: usize,
    pub write: usize,
}

impl Default for Buffers {
    fn default() -> Buffers {
        Buffers {
            read: 128 << 10,
            write: 128 << 10,
        }
    }
}

impl Buffers {
    /// From settings; 0 means the default.
    pub fn sized(read: usize, write: usize) -> Buffers {
        let default = Buffers::default();
        Buffers {
            read: if read == 0 { default.read } else { read },
            write: if write == 0 { default.write } else { write },
        }
    }
}

/// A connection before TLS.
#[derive(Debug)]
pub(crate) struct Socket {
    wire: Wire,
    buffers: Buffers,
    ahead: BytesMut,
    gathered: BytesMut,
    /// The last read was of a large frame; another is likely.
    large_frames: bool,
    /// The last write was large and has not been flushed since.
    more_expected: bool,
}

#[derive(Debug)]
enum Wire {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Socket {
    pub fn tcp(stream: TcpStream, buffers: Buffers) -> Socket {
        Socket::new(Wire::Tcp(stream), buffers)
    }

    pub fn unix(stream: UnixStream, buffers: Buffers) -> Socket {
        Socket::new(Wire::Unix(stream), buffers)
    }

    fn new(wire: Wire, buffers: Buffers) -> Socket {
        let (ahead, gathered) = (BytesMut::new(), BytesMut::new());
        Socket {
            wire,
            buffers,
            ahead,
            gathered,
            large_frames: false,
            more_expected: false,
        }
    }

    fn poll_drain(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.gathered.has_remaining() {
            if ready!(poll_write_buf(
                Pin::new(&mut self.wire),
                cx,
                &mut self.gathered
            ))? == 0
            {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
        }
        self.gathered = BytesMut::new();
        Poll::Ready(Ok(()))
    }
}

impl AsyncRead for Socket {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let me = &mut *self;
        // A deferred flush was not followed by a write: the reader now waits for the response to it.
        if !me.more_expected
            && me.gathered.has_remaining()
            && let Poll::Ready(outcome) = me.poll_drain(cx)
        {
            outcome?;
        }
        if me.ahead.is_empty() {
            if buf.remaining() >= me.buffers.read {
                me.large_frames = true;
                return Pin::new(&mut me.wire).poll_read(cx, buf);
            }
            if me.large_frames {
                me.ahead = BytesMut::with_capacity(HEAD);
            } else {
                me.ahead.reserve(me.buffers.read);
            }
            if !matches!(
                poll_read_buf(Pin::new(&mut me.wire), cx, &mut me.ahead)?,
                Poll::Ready(_)
            ) {
                me.ahead = BytesMut::new();
                return Poll::Pending;
            }
            me.large_frames = false;
        }
        let count = me.ahead.len().min(buf.remaining());
        buf.put_slice(&me.ahead[..count]);
        me.ahead.advance(count);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Socket {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(cx, &[IoSlice::new(buf)])
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let me = &mut *self;
        let size: usize = bufs.iter().map(|buf| buf.len()).sum();
        if me.gathered.len() + size > me.buffers.write {
            ready!(me.poll_drain(cx))?;
        }
        let worthwhile = (LARGE..me.buffers.write).contains(&size);
        if me.gathered.is_empty() && !worthwhile {
            return Pin::new(&mut me.wire).poll_write_vectored(cx, bufs);
        }
        if me.gathered.is_empty() {
            me.gathered.reserve(me.buffers.write);
        }
        for buf in bufs {
            me.gathered.extend_from_slice(buf);
        }
        me.more_expected = worthwhile;
        Poll::Ready(Ok(size))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.more_expected {
            // More is usually written before the task yields. If not, as when the peer's window is exhausted, the
            // wake-up resumes the task, and its next flush or read sends the buffer.
            self.more_expected = false;
            cx.waker().wake_by_ref();
            return Poll::Ready(Ok(()));
        }
        ready!(self.poll_drain(cx))?;
        Pin::new(&mut self.wire).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_drain(cx))?;
        Pin::new(&mut self.wire).poll_shutdown(cx)
    }
}

impl AsyncRead for Wire {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Wire::Tcp(stream) => Pin::new(stream).poll_read(cx, buf),
            Wire::Unix(stream) => Pin::new(stream).poll_read(cx, buf),
        }
    }
}

impl AsyncWrite for Wire {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Wire::Tcp(stream) => Pin::new(stream).poll_write(cx, buf),
            Wire::Unix(stream) => Pin::new(stream).poll_write(cx, buf),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Wire::Tcp(stream) => Pin::new(stream).poll_write_vectored(cx, bufs),
            Wire::Unix(stream) => Pin::new(stream).poll_write_vectored(cx, bufs),
        }
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Wire::Tcp(stream) => Pin::new(stream).poll_flush(cx),
            Wire::Unix(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Wire::Tcp(stream) => Pin::new(stream).poll_shutdown(cx),
            Wire::Unix(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    fn pair(buffers: Buffers) -> (Socket, UnixStream) {
        let (ours, theirs) = UnixStream::pair().unwrap();
        (Socket::unix(ours, buffers), theirs)
    }

    #[tokio::test]
    async fn writes_of_any_size_arrive_in_order() {
        let (mut socket, mut peer) = pair(Buffers {
            read: 1,
            write: 50_000,
        });
        let sizes = [5, 20_000, 20_000, 20_000, 3, 100_000, 20_000, 7];
        let sent: Vec<Vec<u8>> = (1..)
            .zip(sizes)
            .map(|(byte, size)| vec![byte; size])
            .collect();
        let expected = sent.concat();
        let reading = async {
            let mut got = vec![0; expected.len()];
            peer.read_exact(&mut got).await.unwrap();
            got
        };
        let writing = async {
            for piece in &sent {
                socket.write_all(piece).await.unwrap();
            }
            socket.flush().await.unwrap();
        };
        let (got, ()) = tokio::join!(reading, writing);
        assert!(got == expected);
    }

    #[tokio::test]
    async fn a_deferred_large_write_is_sent_by_the_next_flush_or_read() {
        for by_read in [true, false] {
            let (mut socket, mut peer) = pair(Buffers::default());
            socket.write_all(&[1; LARGE]).await.unwrap();
            socket.flush().await.unwrap();
            let asking = async {
                if by_read {
                    socket.read_u8().await.unwrap();
                } else {
                    socket.flush().await.unwrap();
                }
            };
            let answering = async {
                peer.read_exact(&mut [0; LARGE]).await.unwrap();
                peer.write_all(b"x").await.unwrap();
            };
            tokio::join!(asking, answering);
        }
    }

    #[tokio::test]
    async fn read_ahead_loses_nothing_and_frees_its_buffer_when_idle() {
        let (mut socket, mut peer) = pair(Buffers {
            read: 1000,
            write: 0,
        });
        let sent: Vec<u8> = (0..250).cycle().take(5003).collect();
        peer.write_all(&sent).await.unwrap();
        let mut got = vec![0; sent.len()];
        for piece in got.chunks_mut(7) {
            socket.read_exact(piece).await.unwrap();
        }
        assert!(got == sent);
        let waiting = std::future::poll_fn(|cx| {
            let mut byte = [0];
            let read = Pin::new(&mut socket).poll_read(cx, &mut ReadBuf::new(&mut byte));
            Poll::Ready(read.is_pending())
        });
        assert!(waiting.await);
        assert_eq!(socket.ahead.capacity(), 0);
    }
}
