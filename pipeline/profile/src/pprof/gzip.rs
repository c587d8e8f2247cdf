//! gzip, in which pprof files are kept.

use std::io::{Read, Write};

use flate2::Compression;
use flate2::read::MultiGzDecoder;
use flate2::write::GzEncoder;

use super::read::PprofError;

const MAGIC: [u8; 2] = [0x1f, 0x8b];

/// Compresses a file.
pub fn gzip(file: &[u8]) -> Vec<u8> {
    let mut gzip = GzEncoder::new(Vec::with_capacity(file.len() / 4), Compression::default());
    gzip.write_all(file).expect("a vector takes all bytes");
    gzip.finish().expect("a vector takes all bytes")
}

pub(super) fn is_gzip(file: &[u8]) -> bool {
    file.starts_with(&MAGIC)
}

/// Decompresses a file of up to `limit` bytes.
pub(super) fn gunzip(file: &[u8], limit: usize) -> Result<Vec<u8>, PprofError> {
    let mut plain = Vec::new();
    MultiGzDecoder::new(file)
        .take(limit as u64 + 1)
        .read_to_end(&mut plain)
        .map_err(|error| PprofError::Gzip(error.to_string()))?;
    if plain.len() > limit {
        return Err(PprofError::TooLarge { limit });
    }
    Ok(plain)
}
