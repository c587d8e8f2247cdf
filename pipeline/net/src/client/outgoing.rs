//! Request bodies: complete, or streamed.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use http_body::{Body, Frame, SizeHint};
use tokio::sync::mpsc;

use crate::chunks::Chunks;

#[derive(Debug)]
pub(super) enum Outgoing {
    Whole(Chunks),
    /// Streamed, with the number of remaining bytes.
    Streamed {
        chunks: mpsc::Receiver<Bytes>,
        left: u64,
    },
}

impl Body for Outgoing {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        match &mut *self {
            Outgoing::Whole(body) => Poll::Ready(body.pop().map(|chunk| Ok(Frame::data(chunk)))),
            Outgoing::Streamed { chunks, left } => {
                let Some(chunk) = ready!(chunks.poll_recv(cx)) else {
                    let cut = || {
                        io::Error::new(io::ErrorKind::UnexpectedEof, "the body stream ended early")
                    };
                    return Poll::Ready((*left > 0).then(|| Err(cut())));
                };
                *left = left.saturating_sub(chunk.len() as u64);
                Poll::Ready(Some(Ok(Frame::data(chunk))))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Outgoing::Whole(body) => !body.has_remaining(),
            Outgoing::Streamed { left, .. } => *left == 0,
        }
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(match self {
            Outgoing::Whole(body) => body.remaining() as u64,
            Outgoing::Streamed { left, .. } => *left,
        })
    }
}
