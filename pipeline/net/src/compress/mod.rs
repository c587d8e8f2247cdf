//! Compressing and decompressing whole messages.
//!
//! A message is always at hand as a whole, so it goes through in one call, which for gzip is several
//! times faster than a stream ([`deflate`] has the figures). What is decompressed is untrusted: no
//! output grows beyond the caller's limit, whatever the input announces.
//!
//! Contexts are not kept between calls: setting one up was measured at 3 % of a zstd call on a small
//! message (182 KB) and less than that for gzip, too little for state that lives as long as threads.

mod deflate;
mod encoding;
mod snappy;
mod stream;

use std::io::Read;

use bytes::Bytes;
use profcol_admission::{Admission, Exhausted, Reservation};
use tokio::task::{JoinError, spawn_blocking};

pub(crate) use encoding::GRPC_ACCEPTED;
pub use encoding::{Compression, Encoding, Level};

/// Why bytes could not be decompressed.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum DecompressError {
    #[error("decompressed size exceeds the limit of {limit} bytes")]
    TooLarge { limit: usize },
    #[error("invalid {encoding} data: {reason}")]
    Invalid { encoding: Encoding, reason: String },
    #[error(transparent)]
    Exhausted(#[from] Exhausted),
}

/// What is up to this size is worked on where it is, which takes some ms at most; what is larger goes
/// to a thread of its own, so that it does not hold up the connections that share this thread.
const INLINE: usize = 1 << 20;
/// A message that came in no more than [`INLINE`] bytes may still become so much larger that it takes
/// long; beyond this it is begun anew on a thread of its own.
const INLINE_OUTPUT: usize = 8 << 20;

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

/// [`decompress`], where each buffer is admitted before it is made, with room for what is decoded
/// from it. That room is left when the buffer is full.
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

/// About what a message takes once it is decoded.
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
    // The buffer was made for the worst case, and the bytes may wait in a queue.
    bytes.shrink_to_fit();
    Bytes::from(bytes)
}

/// Decompresses what a client sent, as far as there is room for it, and away from the runtime's
/// threads if it may take long. With it comes the room for what is decoded from it: a request that
/// was decompressed is not refused afterwards because of others that came in the meantime, so that
/// some of a crowd always get in.
pub(crate) async fn decompress_request(
    admission: &Admission,
    encoding: Encoding,
    bytes: &Bytes,
    limit: usize,
) -> Result<(Bytes, Reservation), DecompressError> {
    if bytes.len() <= INLINE {
        let inline_limit = limit.min(INLINE_OUTPUT);
        match decompress_admitted(admission, encoding, bytes, inline_limit) {
            Err(DecompressError::TooLarge { .. }) if inline_limit < limit => {}
            done => return done,
        }
    }
    let (asked, bytes) = (admission.clone(), bytes.clone());
    let work = move || decompress_admitted(&asked, encoding, &bytes, limit);
    finished(admission.run_blocking(work).await)
}

/// Decompresses what a server answered, away from the runtime's threads if it may take long.
pub(crate) async fn decompress_answer(
    encoding: Encoding,
    bytes: &Bytes,
    limit: usize,
) -> Result<Bytes, DecompressError> {
    let bytes = bytes.clone();
    off_thread(bytes.len() > INLINE, move || {
        decompress(encoding, &bytes, limit)
    })
    .await
}

/// [`compress`], away from the runtime's threads if that may take long.
pub(crate) async fn compress_async(encoding: Encoding, level: Level, plain: &Bytes) -> Bytes {
    let plain = plain.clone();
    off_thread(plain.len() > INLINE, move || {
        compress(encoding, level, &plain)
    })
    .await
}

async fn off_thread<T: Send + 'static>(far: bool, work: impl FnOnce() -> T + Send + 'static) -> T {
    if !far {
        return work();
    }
    finished(spawn_blocking(work).await)
}

/// The task is never aborted, so it can only have panicked: that is passed on.
fn finished<T>(task: Result<T, JoinError>) -> T {
    task.unwrap_or_else(|error| std::panic::resume_unwind(error.into_panic()))
}

/// What a decompressed message may take.
struct Room<'a> {
    limit: usize,
    /// Bytes of it that are in use.
    filled: usize,
    /// None where only the limit counts.
    reservation: Option<&'a mut Reservation>,
}

impl Room<'_> {
    /// Called before there is a buffer of this size.
    fn admit(&mut self, size: usize) -> Result<(), Exhausted> {
        match &mut self.reservation {
            Some(reservation) => {
                let missing = size.saturating_sub(self.filled);
                reservation.resize_between(missing, missing.saturating_add(decoded_size(size)))
            }
            None => Ok(()),
        }
    }

    /// Called when so many bytes of the buffer are filled, which is kept.
    fn fill(&mut self, filled: usize) {
        if let Some(reservation) = &mut self.reservation {
            reservation.spend(filled.saturating_sub(self.filled));
        }
        self.filled = filled;
    }
}

/// What one attempt to decompress into a buffer of fixed size came to.
enum Attempt {
    Done(usize),
    TooSmall,
}

/// Decompresses into ever larger buffers, from `guess` to `limit` bytes, for libraries that need the
/// room beforehand.
fn into_growing(
    guess: usize,
    room: &mut Room,
    mut attempt: impl FnMut(&mut [u8]) -> Result<Attempt, DecompressError>,
) -> Result<Vec<u8>, DecompressError> {
    let limit = room.limit;
    let mut size = guess.clamp(1, limit.max(1));
    loop {
        room.admit(size)?;
        // Zeroed memory of this size comes fresh from the kernel: what is not written costs nothing.
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

/// Reads a decoder to its end, or until it has given more than `limit` bytes.
fn read_all(
    encoding: Encoding,
    mut decoder: impl Read,
    guess: usize,
    room: &mut Room,
) -> Result<Vec<u8>, DecompressError> {
    let limit = room.limit;
    let invalid = |error: std::io::Error| DecompressError::Invalid {
        encoding,
        reason: error.to_string(),
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
        // The larger the steps, the more is set aside that is never used.
        size = size.saturating_add(size / 4 + 1).min(limit);
    }
    plain.shrink_to_fit();
    Ok(plain)
}

#[cfg(test)]
mod tests;
