//! How long a peer may take over a body.
//!
//! A total limit would cut off an honest sender on a slow line; a limit per read lets one byte every
//! minute hold a connection for ever. So a body must keep a pace: in each [`WINDOW`] at least
//! [`LEAST`] bytes, or its end.

use std::future::poll_fn;
use std::pin::Pin;
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame};
use tokio::time::{Instant, timeout_at};

const WINDOW: Duration = Duration::from_secs(30);
const LEAST: usize = 16 << 10;

/// The peer sends too slowly, or has stopped.
#[derive(Debug, thiserror::Error)]
#[error("body arrives too slowly: {got} bytes in {} seconds, at least {LEAST} are expected", WINDOW.as_secs())]
pub(crate) struct Stalled {
    got: usize,
}

/// Clock of one body.
#[derive(Debug)]
pub(crate) struct Pace {
    window_ends: Instant,
    in_window: usize,
}

impl Pace {
    pub fn start(now: Instant) -> Pace {
        Pace {
            window_ends: now + WINDOW,
            in_window: 0,
        }
    }

    pub fn received(&mut self, bytes: usize) {
        self.in_window += bytes;
    }

    /// The next frame of the body; `None` after the last.
    pub async fn next_frame<B>(
        &mut self,
        body: &mut B,
    ) -> Result<Option<Result<Frame<Bytes>, B::Error>>, Stalled>
    where
        B: Body<Data = Bytes> + Unpin,
    {
        loop {
            let frame = poll_fn(|cx| Pin::new(&mut *body).poll_frame(cx));
            if let Ok(frame) = timeout_at(self.window_ends, frame).await {
                return Ok(frame);
            }
            if self.in_window < LEAST {
                return Err(Stalled {
                    got: self.in_window,
                });
            }
            *self = Pace::start(Instant::now());
        }
    }
}
