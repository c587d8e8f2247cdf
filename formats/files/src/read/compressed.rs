//! Compressed files and records, with a limit on what they become.

use std::io::Read;

use flate2::read::GzDecoder;

use super::ReadError;

pub(super) const ZSTD: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];
pub(super) const GZIP: [u8; 2] = [0x1f, 0x8b];
/// Window size of a zstd stream, as a power of two: recordings have long ones.
const WINDOW_LOG: u32 = 27;

/// Decompresses zstd or gzip.
pub(super) fn decompress(content: &[u8], max_bytes: usize) -> Result<Vec<u8>, ReadError> {
    if content.starts_with(&GZIP) {
        return bounded(GzDecoder::new(content), max_bytes);
    }
    let mut decoder = zstd::Decoder::with_buffer(content).map_err(ReadError::Compressed)?;
    let window = decoder.window_log_max(WINDOW_LOG);
    window.map_err(ReadError::Compressed)?;
    bounded(decoder, max_bytes)
}

fn bounded(decoder: impl Read, max_bytes: usize) -> Result<Vec<u8>, ReadError> {
    let mut plain = Vec::new();
    let mut decoder = decoder.take((max_bytes as u64).saturating_add(1));
    let read = decoder.read_to_end(&mut plain);
    read.map_err(ReadError::Compressed)?;
    match plain.len() > max_bytes {
        true => Err(ReadError::TooLarge),
        false => Ok(plain),
    }
}
