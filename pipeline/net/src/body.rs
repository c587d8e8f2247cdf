//! Reads a whole HTTP body.

use bytes::Bytes;
use http_body::Body;
use profcol_admission::{Admission, Exhausted};
use tokio::time::Instant;

use crate::pace::Pace;

/// A `content-length` up to this is allocated upfront; beyond it the buffer grows as bytes arrive.
const MAX_PREALLOCATED: usize = 1 << 20;

/// Why a body could not be received.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BodyError {
    #[error("body exceeds the limit of {limit} bytes")]
    TooLarge { limit: usize },
    #[error("body arrives too slowly")]
    Slow,
    #[error("failed to read the body: {0}")]
    Broken(#[from] hyper::Error),
    #[error(transparent)]
    Exhausted(#[from] Exhausted),
}

/// Reads a body of at most `limit` bytes, if admitted. A single-frame body is not copied.
pub(crate) async fn read_body<B>(
    body: &mut B,
    announced: Option<usize>,
    limit: usize,
    admission: &Admission,
) -> Result<Bytes, BodyError>
where
    B: Body<Data = Bytes, Error = hyper::Error> + Unpin,
{
    let mut pace = Pace::start(Instant::now());
    if announced.is_some_and(|announced| announced > limit) {
        drain(body, pace, limit).await;
        return Err(BodyError::TooLarge { limit });
    }
    let mut only = Bytes::new();
    let mut whole = Vec::new();
    while !body.is_end_stream() {
        let frame = match pace.next_frame(body).await {
            Ok(Some(frame)) => frame?,
            Ok(None) => break,
            Err(_) => return Err(BodyError::Slow),
        };
        let Ok(data) = frame.into_data() else {
            continue;
        };
        pace.received(data.len());
        if only.len() + whole.len() + data.len() > limit {
            drop((only, whole));
            drain(body, pace, limit).await;
            return Err(BodyError::TooLarge { limit });
        }
        if let Err(exhausted) = admission.take(data.len()) {
            drop((only, whole));
            drain(body, pace, limit).await;
            return Err(exhausted.into());
        }
        if only.is_empty() && whole.is_empty() {
            only = data;
            continue;
        }
        if whole.is_empty() {
            whole.reserve_exact(announced.unwrap_or(0).clamp(
                only.len() + data.len(),
                MAX_PREALLOCATED.max(only.len() + data.len()),
            ));
            whole.extend_from_slice(&std::mem::take(&mut only));
        }
        if whole.capacity() - whole.len() < data.len() {
            let goal = (whole.capacity() * 4)
                .min(announced.unwrap_or(limit))
                .max(whole.len() + data.len());
            whole.reserve_exact(goal - whole.len());
        }
        whole.extend_from_slice(&data);
    }
    Ok(if whole.is_empty() {
        only
    } else {
        Bytes::from(whole)
    })
}

/// Drains a body before it is refused: a client still sending when the connection closes would miss the response,
/// assume a broken connection and resend. Beyond twice the limit the connection is closed anyway.
async fn drain<B>(body: &mut B, mut pace: Pace, limit: usize)
where
    B: Body<Data = Bytes, Error = hyper::Error> + Unpin,
{
    let mut dropped = 0;
    while dropped <= limit.saturating_mul(2) && !body.is_end_stream() {
        let Ok(Some(Ok(frame))) = pace.next_frame(body).await else {
            break;
        };
        let bytes = frame.data_ref().map_or(0, Bytes::len);
        pace.received(bytes);
        dropped += bytes;
    }
}
