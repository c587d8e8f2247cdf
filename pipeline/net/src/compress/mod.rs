//! Compresses and decompresses whole messages.
//!
//! Messages are complete in memory, so one call processes them, which for gzip is several times faster than streaming
//! ([`deflate`] has the figures). Input is untrusted: output never exceeds the caller's limit, whatever size the input
//! announces.
//!
//! Contexts are not kept between calls: setup took 3 % of a zstd call on a small message (182 KB) and less for gzip,
//! too little to justify per-thread state.

mod deflate;
mod encoding;
mod snappy;
mod stream;

use std::error::Error;
use std::io::Read;

use bytes::Bytes;
use profcol_admission::{Admission, Exhausted, Reservation};
use tokio::task::{JoinError, spawn_blocking};

pub(crate) use encoding::GRPC_ACCEPTED;
pub use encoding::{Compression, Encoding, Level};

/// Why bytes could not be decompressed.
#[derive(Debug, thiserror::Error)]
pub enum DecompressError {
    #[error("decompressed size exceeds the limit of {limit} bytes")]
    TooLarge { limit: usize },
    #[error("invalid {encoding} data: {source}")]
    Invalid {
        encoding: Encoding,
        source: Box<dyn Error + Send + Sync>,
    },
    #[error(transparent)]
    Exhausted(#[from] Exhausted),
}

/// Input up to this size is processed inline, which takes a few ms at most; larger input goes to a blocking thread, so
/// that it does not delay connections on this thread.
const MAX_INLINE_INPUT: usize = 1 << 20;
/// Input up to [`MAX_INLINE_INPUT`] bytes may still expand so much that it takes long; beyond this output size it is
/// restarted on a blocking thread.
const MAX_INLINE_OUTPUT: usize = 8 << 20;

/// Decompresses a whole message of at most `limit` bytes.
pub fn decompress(
    encoding: Encoding,
    bytes: &[u8],
    limit: usize,
) -> Result<Bytes, DecompressError> {
    let mut room = Room {
        limit,
        filled: 0,
        reservation: None,
    };
    decompress_into(&mut room, encoding, bytes)
}

/// [`decompress`] with admission of each buffer before it is allocated, plus memory for decoding it, which stays
/// reserved once the buffer is full.
fn decompress_admitted(
    admission: &Admission,
    encoding: Encoding,
    bytes: &[u8],
    limit: usize,
) -> Result<(Bytes, Reservation), DecompressError> {
    let mut reservation = admission.reservation();
    let mut room = Room {
        limit,
        filled: 0,
        reservation: Some(&mut reservation),
    };
    let plain = decompress_into(&mut room, encoding, bytes)?;
    reservation.resize_between(0, decoded_size(plain.len()))?;
    Ok((plain, reservation))
}

/// Estimated memory of a decoded message.
fn decoded_size(size: usize) -> usize {
    size.saturating_add(size / 16)
}

fn decompress_into(
    room: &mut Room,
    encoding: Encoding,
    bytes: &[u8],
) -> Result<Bytes, DecompressError> {
    let plain = match encoding {
        Encoding::Gzip => deflate::gunzip(bytes, room),
        Encoding::Zlib => deflate::inflate(bytes, room),
        Encoding::Zstd => stream::unzstd(bytes, room),
        Encoding::Snappy => snappy::decompress(bytes, room),
        Encoding::SnappyFramed => snappy::decompress_framed(bytes, room),
        Encoding::Lz4 => stream::unlz4(bytes, room),
    }?;
    Ok(Bytes::from(plain))
}

/// Compresses a whole message.
pub fn compress(encoding: Encoding, level: Level, plain: &[u8]) -> Bytes {
    let mut bytes = match encoding {
        Encoding::Gzip => deflate::gzip(plain, level),
        Encoding::Zlib => deflate::zlib(plain, level),
        Encoding::Zstd => stream::zstd(plain, level),
        Encoding::Snappy => snappy::compress(plain),
        Encoding::SnappyFramed => snappy::compress_framed(plain),
        Encoding::Lz4 => stream::lz4(plain),
    };
    // The buffer has the worst-case size, and may wait in a queue.
    bytes.shrink_to_fit();
    Bytes::from(bytes)
}

/// Decompresses a request, if admitted, on a blocking thread if it may take long. Also reserves the memory to decode
/// it: a decompressed request is not refused later because of others, so that some requests of a crowd always succeed.
pub(crate) async fn decompress_request(
    admission: &Admission,
    encoding: Encoding,
    bytes: &Bytes,
    limit: usize,
) -> Result<(Bytes, Reservation), DecompressError> {
    if bytes.len() <= MAX_INLINE_INPUT {
        let inline_limit = limit.min(MAX_INLINE_OUTPUT);
        match decompress_admitted(admission, encoding, bytes, inline_limit) {
            Err(DecompressError::TooLarge { .. }) if inline_limit < limit => {}
            done => return done,
        }
    }
    let (admitting, bytes) = (admission.clone(), bytes.clone());
    let work = move || decompress_admitted(&admitting, encoding, &bytes, limit);
    finished(admission.run_blocking(work).await)
}

/// Decompresses a response, on a blocking thread if it may take long.
pub(crate) async fn decompress_answer(
    encoding: Encoding,
    bytes: &Bytes,
    limit: usize,
) -> Result<Bytes, DecompressError> {
    let bytes = bytes.clone();
    run_maybe_blocking(bytes.len() > MAX_INLINE_INPUT, move || {
        decompress(encoding, &bytes, limit)
    })
    .await
}

/// [`compress`], on a blocking thread if it may take long.
pub(crate) async fn compress_async(encoding: Encoding, level: Level, plain: &Bytes) -> Bytes {
    let plain = plain.clone();
    run_maybe_blocking(plain.len() > MAX_INLINE_INPUT, move || {
        compress(encoding, level, &plain)
    })
    .await
}

async fn run_maybe_blocking<T: Send + 'static>(
    is_large: bool,
    work: impl FnOnce() -> T + Send + 'static,
) -> T {
    if !is_large {
        return work();
    }
    finished(spawn_blocking(work).await)
}

/// The task is never aborted, so a join error is a panic: propagate it.
fn finished<T>(task: Result<T, JoinError>) -> T {
    task.unwrap_or_else(|error| std::panic::resume_unwind(error.into_panic()))
}

/// Memory limit for a decompressed message.
struct Room<'a> {
    limit: usize,
    /// Bytes in use.
    filled: usize,
    /// `None` if only the limit applies.
    reservation: Option<&'a mut Reservation>,
}

impl Room<'_> {
    /// Called before a buffer of this size is allocated.
    fn admit(&mut self, size: usize) -> Result<(), Exhausted> {
        match &mut self.reservation {
            Some(reservation) => {
                let missing = size.saturating_sub(self.filled);
                reservation.resize_between(missing, missing.saturating_add(decoded_size(size)))
            }
            None => Ok(()),
        }
    }

    /// Called when `filled` bytes of the buffer are in use.
    fn fill(&mut self, filled: usize) {
        if let Some(reservation) = &mut self.reservation {
            reservation.spend(filled.saturating_sub(self.filled));
        }
        self.filled = filled;
    }
}

/// Result of decompressing into a buffer of fixed size.
enum Attempt {
    Done(usize),
    TooSmall,
}

/// Decompresses into increasingly large buffers, from `guess` to `limit` bytes, for libraries that need the full buffer
/// upfront.
fn into_growing(
    guess: usize,
    room: &mut Room,
    mut attempt: impl FnMut(&mut [u8]) -> Result<Attempt, DecompressError>,
) -> Result<Vec<u8>, DecompressError> {
    let limit = room.limit;
    let mut size = guess.clamp(1, limit.max(1));
    loop {
        room.admit(size)?;
        // Zeroed memory of this size comes from fresh pages: untouched ones cost nothing.
        let mut buffer = vec![0; size];
        match attempt(&mut buffer)? {
            Attempt::Done(len) if len <= limit => {
                buffer.truncate(len);
                buffer.shrink_to_fit();
                return Ok(buffer);
            }
            Attempt::TooSmall if size < limit => size = size.saturating_mul(2).min(limit),
            Attempt::Done(_) | Attempt::TooSmall => {
                return Err(DecompressError::TooLarge { limit });
            }
        }
    }
}

/// Reads a decoder to its end, or until it exceeds `limit` bytes.
fn read_all(
    encoding: Encoding,
    mut decoder: impl Read,
    guess: usize,
    room: &mut Room,
) -> Result<Vec<u8>, DecompressError> {
    let limit = room.limit;
    let invalid = |error: std::io::Error| DecompressError::Invalid {
        encoding,
        source: error.into(),
    };
    let mut plain = Vec::new();
    let mut size = guess.clamp(1, limit.max(1));
    loop {
        room.admit(size)?;
        plain.reserve_exact(size - plain.len());
        let missing = (size - plain.len()) as u64;
        let mut part = decoder.by_ref().take(missing);
        part.read_to_end(&mut plain).map_err(invalid)?;
        room.fill(plain.len());
        if plain.len() < size {
            break;
        }
        if size >= limit {
            if decoder.read(&mut [0]).map_err(invalid)? > 0 {
                return Err(DecompressError::TooLarge { limit });
            }
            break;
        }
        // Larger steps would reserve more unused memory.
        size = size.saturating_add(size / 4 + 1).min(limit);
    }
    plain.shrink_to_fit();
    Ok(plain)
}

#[cfg(test)]
mod tests;
