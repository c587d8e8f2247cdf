//! gzip and zlib, through libdeflate.
//!
//! Against zlib-rs and Go's `compress/gzip`, ms (bytes) on one core in one run, messages of
//! `otlp/generated`:
//!
//! ```text
//!                    small, 182 KB     medium, 463 KB     large, 791 KB
//! Go, level 6         9.10 (68,577)    26.15 (185,255)    42.95 (372,205)
//! zlib-rs 6           4.47 (69,116)    13.31 (185,643)    19.05 (376,503)
//! libdeflate 6        2.38 (66,900)     6.40 (184,742)    10.97 (371,729)   <- the default
//! libdeflate 5        1.61 (67,703)     4.38 (187,134)     7.92 (375,410)
//! gunzip: zlib-rs     0.27              0.90               1.64
//! gunzip: libdeflate  0.16              0.49               0.98
//! ```
//!
//! Level 6 is the lowest whose output is never larger than Go's default.

use flate2::read::MultiGzDecoder;
use libdeflater::{CompressionLvl, Compressor, DecompressionError, Decompressor};

use super::{Attempt, DecompressError, Encoding, Level, Room, into_growing, read_all};

/// Maximum expansion of a deflate stream.
const MAX_RATIO: usize = 1032;
/// Initial guess if the size is not announced.
const TYPICAL_RATIO: usize = 8;

pub(super) fn gzip(plain: &[u8], level: Level) -> Vec<u8> {
    let mut compressor = compressor(level);
    let mut out = vec![0; compressor.gzip_compress_bound(plain.len())];
    let len = compressor
        .gzip_compress(plain, &mut out)
        .expect("the buffer has the required size");
    out.truncate(len);
    out
}

pub(super) fn zlib(plain: &[u8], level: Level) -> Vec<u8> {
    let mut compressor = compressor(level);
    let mut out = vec![0; compressor.zlib_compress_bound(plain.len())];
    let len = compressor
        .zlib_compress(plain, &mut out)
        .expect("the buffer has the required size");
    out.truncate(len);
    out
}

fn compressor(level: Level) -> Compressor {
    let level = match level.0 {
        0 | -1 => 6,
        // Go's "Huffman only"; level 1 here is no slower and compresses better.
        -2 => 1,
        level => level.clamp(1, 12),
    };
    Compressor::new(CompressionLvl::new(level).expect("1 to 12 are valid levels"))
}

pub(super) fn gunzip(bytes: &[u8], room: &mut Room) -> Result<Vec<u8>, DecompressError> {
    // libdeflate decodes only the first member. A second one would start with these three bytes; if they occur by
    // chance, the slower decoder is correct too.
    let several = bytes
        .get(1..)
        .is_some_and(|rest| memchr::memmem::find(rest, &[0x1f, 0x8b, 8]).is_some());
    if several {
        let guess = bytes.len().saturating_mul(TYPICAL_RATIO);
        return read_all(Encoding::Gzip, MultiGzDecoder::new(bytes), guess, room);
    }
    // The last four bytes are the claimed size.
    let announced = bytes
        .last_chunk()
        .map_or(0, |size| u32::from_le_bytes(*size) as usize);
    let guess = announced.clamp(bytes.len(), bytes.len().saturating_mul(MAX_RATIO));
    let mut decompressor = Decompressor::new();
    into_growing(guess, room, |out| {
        outcome(Encoding::Gzip, decompressor.gzip_decompress(bytes, out))
    })
}

pub(super) fn inflate(bytes: &[u8], room: &mut Room) -> Result<Vec<u8>, DecompressError> {
    let guess = bytes.len().saturating_mul(TYPICAL_RATIO);
    let mut decompressor = Decompressor::new();
    into_growing(guess, room, |out| {
        outcome(Encoding::Zlib, decompressor.zlib_decompress(bytes, out))
    })
}

fn outcome(
    encoding: Encoding,
    result: Result<usize, DecompressionError>,
) -> Result<Attempt, DecompressError> {
    match result {
        Ok(len) => Ok(Attempt::Done(len)),
        Err(DecompressionError::InsufficientSpace) => Ok(Attempt::TooSmall),
        Err(DecompressionError::BadData) => {
            let source = "corrupt, truncated, or not in this format".into();
            Err(DecompressError::Invalid { encoding, source })
        }
    }
}
