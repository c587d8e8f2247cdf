//! Snappy block and framing formats.

use std::io::Write;

use snap::raw;
use snap::read::FrameDecoder;
use snap::write::FrameEncoder;

use super::{DecompressError, Encoding, Room, read_all};

pub(super) fn compress(plain: &[u8]) -> Vec<u8> {
    raw::Encoder::new()
        .compress_vec(plain)
        .expect("messages are smaller than snappy's limit of 4 GiB")
}

pub(super) fn compress_framed(plain: &[u8]) -> Vec<u8> {
    let mut encoder = FrameEncoder::new(Vec::with_capacity(plain.len() / 2));
    encoder
        .write_all(plain)
        .expect("writing to memory does not fail");
    encoder
        .into_inner()
        .expect("writing to memory does not fail")
}

pub(super) fn decompress(bytes: &[u8], room: &mut Room) -> Result<Vec<u8>, DecompressError> {
    let invalid = |error: snap::Error| DecompressError::Invalid {
        encoding: Encoding::Snappy,
        source: error.into(),
    };
    let size = raw::decompress_len(bytes).map_err(invalid)?;
    let limit = room.limit;
    if size > limit {
        return Err(DecompressError::TooLarge { limit });
    }
    room.admit(size)?;
    raw::Decoder::new().decompress_vec(bytes).map_err(invalid)
}

pub(super) fn decompress_framed(bytes: &[u8], room: &mut Room) -> Result<Vec<u8>, DecompressError> {
    let guess = bytes.len().saturating_mul(2);
    read_all(
        Encoding::SnappyFramed,
        FrameDecoder::new(bytes),
        guess,
        room,
    )
}
