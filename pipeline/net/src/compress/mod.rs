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

use bytes::Bytes;

pub(crate) use encoding::GRPC_ACCEPTED;
pub use encoding::{Compression, Encoding, Level};

/// Why bytes could not be decompressed.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum DecompressError {
    #[error("decompresses to more than {limit} bytes, the limit")]
    TooLarge { limit: usize },
    #[error("invalid {encoding} data: {reason}")]
    Invalid { encoding: Encoding, reason: String },
}

/// What is up to this size is worked on where it is, which takes some ms at most; what is larger goes
/// to a thread of its own, so that it does not hold up the connections that share this thread. Such
/// threads are many and each has memory of its own, so they are for what is rare.
const INLINE: usize = 1 << 20;

/// Decompresses a whole message of at most `limit` bytes.
pub fn decompress(
    encoding: Encoding,
    bytes: &[u8],
    limit: usize,
) -> Result<Bytes, DecompressError> {
    let plain = match encoding {
        Encoding::Gzip => deflate::gunzip(bytes, limit),
        Encoding::Zlib => deflate::inflate(bytes, limit),
        Encoding::Zstd => stream::unzstd(bytes, limit),
        Encoding::Snappy => snappy::decompress(bytes, limit),
        Encoding::SnappyFramed => snappy::decompress_framed(bytes, limit),
        Encoding::Lz4 => stream::unlz4(bytes, limit),
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

/// [`decompress`], away from the runtime's threads if that may take long.
pub(crate) async fn decompress_async(
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
    match tokio::task::spawn_blocking(work).await {
        Ok(result) => result,
        // The task is never aborted, so it can only have panicked: that is passed on.
        Err(error) => std::panic::resume_unwind(error.into_panic()),
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
    limit: usize,
    mut attempt: impl FnMut(&mut [u8]) -> Result<Attempt, DecompressError>,
) -> Result<Vec<u8>, DecompressError> {
    let mut size = guess.clamp(1, limit.max(1));
    loop {
        // Zeroed memory of this size comes fresh from the kernel: what is not written costs nothing.
        let mut buffer = vec![0; size];
        match attempt(&mut buffer)? {
            Attempt::Done(len) if len <= limit => {
                buffer.truncate(len);
                buffer.shrink_to_fit();
                return Ok(buffer);
            }
            Attempt::TooSmall if size < limit => size = size.saturating_mul(4).min(limit),
            Attempt::Done(_) | Attempt::TooSmall => {
                return Err(DecompressError::TooLarge { limit });
            }
        }
    }
}

/// Reads a decoder to its end, or until it has given more than `limit` bytes.
fn read_all(
    encoding: Encoding,
    decoder: impl std::io::Read,
    guess: usize,
    limit: usize,
) -> Result<Vec<u8>, DecompressError> {
    use std::io::Read;
    let mut plain = Vec::with_capacity(guess.min(limit));
    let read = decoder.take(limit as u64 + 1).read_to_end(&mut plain);
    if plain.len() > limit {
        return Err(DecompressError::TooLarge { limit });
    }
    read.map_err(|error| DecompressError::Invalid {
        encoding,
        reason: error.to_string(),
    })?;
    plain.shrink_to_fit();
    Ok(plain)
}

#[cfg(test)]
mod tests;
