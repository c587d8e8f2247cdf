//! Closes stalled connections.
//!
//! Three kinds of stalls have a timeout that runs only while they last: a client that sends nothing after connecting,
//! one that stops in the middle of request headers or an HTTP/2 frame, and one that does not read what we write. The
//! first two are known as slowloris. [`crate::pace`] handles slow bodies.
//!
//! The first bytes distinguish HTTP/2 from HTTP/1. HTTP/2 frames are tracked, which also counts client pings.

use std::future::Future;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};

use super::lifetime::Activity;
use crate::io::Stream;

/// Timeout per kind of stall; `None` disables it.
#[derive(Clone, Copy, Debug)]
pub(super) struct StallTimeouts {
    pub begin: Option<Duration>,
    /// For the rest of a frame, or of an HTTP/1 request's headers.
    pub middle: Option<Duration>,
    pub write: Option<Duration>,
}

/// A stream with stall timeouts.
#[derive(Debug)]
pub(super) struct StallGuard {
    stream: Stream,
    timeouts: StallTimeouts,
    activity: Arc<Activity>,
    client: Client,
    reading: Option<Pin<Box<Sleep>>>,
    writing: Option<Pin<Box<Sleep>>>,
}

/// The detected protocol.
#[derive(Debug)]
enum Client {
    /// Nothing received, or one byte, which does not distinguish `PRI *` from `POST`.
    Silent(Option<u8>),
    Http1 {
        head_begun: bool,
    },
    Http2(Frames),
}

impl StallGuard {
    pub fn new(stream: Stream, timeouts: StallTimeouts, activity: Arc<Activity>) -> StallGuard {
        let client = Client::Silent(None);
        StallGuard {
            stream,
            timeouts,
            activity,
            client,
            reading: None,
            writing: None,
        }
    }

    fn arrived(&mut self, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        if let Client::Silent(first) = self.client {
            let mut start = first.into_iter().chain(bytes.iter().copied());
            match (start.next(), start.next()) {
                (Some(b'P'), Some(b'R')) => {
                    let mut frames = Frames::new(self.activity.pings.clone());
                    frames.pass(first.as_slice());
                    self.client = Client::Http2(frames);
                }
                (_, Some(_)) => self.client = Client::Http1 { head_begun: false },
                (only, None) => self.client = Client::Silent(only),
            }
            self.reading = None;
        }
        match &mut self.client {
            Client::Silent(_) => {}
            Client::Http1 { head_begun } => *head_begun |= self.activity.is_idle(),
            Client::Http2(frames) => {
                if frames.pass(bytes) {
                    self.reading = None;
                }
            }
        }
    }

    /// The timeout of a pending read and its reason, if any.
    fn read_limit(&mut self) -> Option<(Duration, &'static str)> {
        match &mut self.client {
            Client::Silent(_) => Some((
                self.timeouts.begin?,
                "the client connected but sent nothing",
            )),
            Client::Http1 { head_begun } => {
                *head_begun &= self.activity.is_idle();
                head_begun.then_some((
                    self.timeouts.middle?,
                    "the client stopped in the middle of headers",
                ))
            }
            Client::Http2(frames) => {
                let limit = self.timeouts.middle?;
                frames
                    .in_middle()
                    .then_some((limit, "the client stopped in the middle of a frame"))
            }
        }
    }

    fn wrote<T>(
        &mut self,
        cx: &mut Context<'_>,
        result: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if result.is_ready() {
            self.writing = None;
        } else if let Some(limit) = self.timeouts.write {
            let clock = self.writing.get_or_insert_with(|| Box::pin(sleep(limit)));
            if clock.as_mut().poll(cx).is_ready() {
                return stalled("the client does not read its responses");
            }
        }
        result
    }
}

fn stalled<T>(what: &'static str) -> Poll<io::Result<T>> {
    Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, what)))
}

impl AsyncRead for StallGuard {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let result = Pin::new(&mut self.stream).poll_read(cx, buf);
        if result.is_ready() {
            self.arrived(&buf.filled()[before..]);
            return result;
        }
        let Some((limit, what)) = self.read_limit() else {
            self.reading = None;
            return result;
        };
        let clock = self.reading.get_or_insert_with(|| Box::pin(sleep(limit)));
        if clock.as_mut().poll(cx).is_ready() {
            return stalled(what);
        }
        result
    }
}

impl AsyncWrite for StallGuard {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        let result = Pin::new(&mut self.stream).poll_write(cx, buf);
        self.wrote(cx, result)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let result = Pin::new(&mut self.stream).poll_write_vectored(cx, bufs);
        self.wrote(cx, result)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let result = Pin::new(&mut self.stream).poll_flush(cx);
        self.wrote(cx, result)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let result = Pin::new(&mut self.stream).poll_shutdown(cx);
        self.wrote(cx, result)
    }
}

const PREFACE: usize = 24;
const HEAD: usize = 9;
const HEADERS: u8 = 1;
const PING: u8 = 6;
const CONTINUATION: u8 = 9;
const ACK: u8 = 1;
const END_HEADERS: u8 = 4;

/// Tracks frame boundaries of an HTTP/2 client.
#[derive(Debug)]
struct Frames {
    /// Bytes left of the preface or the current frame's payload.
    skip: usize,
    head: [u8; HEAD],
    filled: usize,
    /// A header block continues in the next frame.
    open_block: bool,
    pings: Arc<AtomicU64>,
}

impl Frames {
    fn new(pings: Arc<AtomicU64>) -> Frames {
        Frames {
            skip: PREFACE,
            head: [0; HEAD],
            filled: 0,
            open_block: false,
            pings,
        }
    }

    /// Whether a started frame or header block is incomplete.
    fn in_middle(&self) -> bool {
        self.skip > 0 || self.filled > 0 || self.open_block
    }

    /// Processes received bytes; returns whether a frame was completed or none is open.
    fn pass(&mut self, mut bytes: &[u8]) -> bool {
        let mut completed = false;
        while !bytes.is_empty() {
            if self.skip > 0 {
                let count = self.skip.min(bytes.len());
                self.skip -= count;
                bytes = &bytes[count..];
                completed |= self.skip == 0;
                continue;
            }
            let count = (HEAD - self.filled).min(bytes.len());
            self.head[self.filled..self.filled + count].copy_from_slice(&bytes[..count]);
            self.filled += count;
            bytes = &bytes[count..];
            if self.filled == HEAD {
                self.filled = 0;
                self.begin_frame();
                completed |= self.skip == 0;
            }
        }
        (completed || !self.in_middle()) && !self.open_block
    }

    fn begin_frame(&mut self) {
        let [a, b, c, kind, flags, ..] = self.head;
        self.skip = u32::from_be_bytes([0, a, b, c]) as usize;
        match kind {
            HEADERS | CONTINUATION => self.open_block = flags & END_HEADERS == 0,
            PING if flags & ACK == 0 => {
                self.pings.fetch_add(1, Relaxed);
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(kind: u8, flags: u8, len: u8) -> Vec<u8> {
        let mut frame = vec![0, 0, len, kind, flags, 0, 0, 0, 1];
        frame.extend(std::iter::repeat_n(0xaa, usize::from(len)));
        frame
    }

    fn after(parts: &[Vec<u8>]) -> Frames {
        let mut frames = Frames::new(Arc::default());
        frames.pass(&[b' '; PREFACE]);
        // Byte by byte, to cross every boundary.
        for byte in parts.concat() {
            frames.pass(&[byte]);
        }
        frames
    }

    #[test]
    fn detects_unfinished_frames() {
        let cut = |mut frame: Vec<u8>, by: usize| {
            frame.truncate(frame.len() - by);
            frame
        };
        for (parts, in_middle) in [
            (vec![], false),
            (vec![frame(4, 0, 6)], false),
            (vec![cut(frame(4, 0, 6), 1)], true),
            (vec![cut(frame(4, 0, 0), 1)], true),
            (vec![frame(HEADERS, 0, 5)], true),
            (
                vec![frame(HEADERS, 0, 5), frame(CONTINUATION, END_HEADERS, 0)],
                false,
            ),
            (
                vec![frame(HEADERS, END_HEADERS, 5), frame(0, 0, 200)],
                false,
            ),
        ] {
            assert_eq!(after(&parts).in_middle(), in_middle, "{parts:?}");
        }
    }

    #[test]
    fn counts_pings_but_not_acks() {
        let frames = after(&[frame(PING, 0, 8), frame(PING, ACK, 8), frame(PING, 0, 8)]);
        assert_eq!(frames.pings.load(Relaxed), 2);
    }
}
