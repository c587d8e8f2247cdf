//! Minimum transfer rate of bodies.
//!
//! A total timeout would cut off slow but legitimate senders; a timeout per read would let one byte a minute hold a
//! connection forever. So each [`WINDOW`] must bring at least [`MIN_BYTES_PER_WINDOW`] bytes and 1/[`MEMORY_SHARE`] of
//! the body held in memory, or its end.

use std::future::poll_fn;
use std::pin::Pin;
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame};
use tokio::time::{Instant, timeout_at};

const WINDOW: Duration = Duration::from_secs(30);
const MIN_BYTES_PER_WINDOW: usize = 16 << 10;
/// At a constant rate, a body may take eight minutes.
const MEMORY_SHARE: usize = 16;

/// The peer sends too slowly or has stopped.
#[derive(Debug, thiserror::Error)]
#[error("body arrives too slowly: {got} bytes in {} seconds, expected at least {least}", WINDOW.as_secs())]
pub(crate) struct Stalled {
    got: usize,
    least: usize,
}

/// Clock of one body.
#[derive(Debug)]
pub(crate) struct Pace {
    window_ends: Instant,
    in_window: usize,
    total: usize,
}

impl Pace {
    pub fn start(now: Instant) -> Pace {
        Pace {
            window_ends: now + WINDOW,
            in_window: 0,
            total: 0,
        }
    }

    pub fn received(&mut self, bytes: usize) {
        self.in_window += bytes;
        self.total += bytes;
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
            let least = MIN_BYTES_PER_WINDOW.max(self.total / MEMORY_SHARE);
            if self.in_window < least {
                return Err(Stalled {
                    got: self.in_window,
                    least,
                });
            }
            self.window_ends = Instant::now() + WINDOW;
            self.in_window = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::task::{Context, Poll};

    use super::*;

    /// Yields this many bytes every ten seconds, forever.
    struct Drip {
        bytes: usize,
        next: Pin<Box<tokio::time::Sleep>>,
    }

    impl Body for Drip {
        type Data = Bytes;
        type Error = Infallible;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            context: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
            std::task::ready!(self.next.as_mut().poll(context));
            self.next = drip();
            let data = Bytes::from(vec![0; self.bytes]);
            Poll::Ready(Some(Ok(Frame::data(data))))
        }
    }

    fn drip() -> Pin<Box<tokio::time::Sleep>> {
        Box::pin(tokio::time::sleep(Duration::from_secs(10)))
    }

    /// For how many windows a body of `first` bytes followed by a drip is accepted.
    async fn windows(first: usize, bytes: usize) -> f64 {
        let began = Instant::now();
        let mut pace = Pace::start(began);
        pace.received(first);
        let mut body = Drip {
            bytes,
            next: drip(),
        };
        while let Ok(Some(Ok(frame))) = pace.next_frame(&mut body).await {
            pace.received(frame.data_ref().map_or(0, Bytes::len));
            if began.elapsed() > Duration::from_secs(10_000) {
                break;
            }
        }
        began.elapsed().div_duration_f64(WINDOW).round()
    }

    #[tokio::test(start_paused = true)]
    async fn the_required_rate_grows_with_the_memory_held() {
        assert_eq!(windows(0, 100).await, 1.0);
        // Bytes received immediately count for the first window.
        assert_eq!(windows(64 << 20, MIN_BYTES_PER_WINDOW).await, 2.0);
        assert_eq!(windows(64 << 20, 1 << 20).await, 2.0);
        let steady = windows(0, MIN_BYTES_PER_WINDOW).await;
        assert!((15.0..=18.0).contains(&steady), "{steady} windows");
    }
}
