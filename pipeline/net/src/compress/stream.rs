//! zstd and LZ4 frames.

use std::io::Write;

use lz4_flex::frame::{FrameDecoder, FrameEncoder};
use zstd::zstd_safe::{self, DCtx};

use super::{Attempt, DecompressError, Encoding, Level, Room, into_growing, read_all};

/// zstd's error code for an output buffer that is too small, as its functions return it.
const OUTPUT_TOO_SMALL: usize = 0usize.wrapping_sub(70);
/// Initial guess if a frame does not announce its size.
const TYPICAL_RATIO: usize = 8;

pub(super) fn zstd(plain: &[u8], level: Level) -> Vec<u8> {
    let mut out = Vec::with_capacity(zstd_safe::compress_bound(plain.len()));
    zstd_safe::compress(&mut out, plain, level.0).expect("the buffer has the required size");
    out
}

/// The frame's window costs no memory: the output buffer is the window.
pub(super) fn unzstd(bytes: &[u8], room: &mut Room) -> Result<Vec<u8>, DecompressError> {
    let announced = zstd_safe::get_frame_content_size(bytes).ok().flatten();
    let guess = announced
        .and_then(|size| usize::try_from(size).ok())
        .unwrap_or_else(|| bytes.len().saturating_mul(TYPICAL_RATIO));
    let mut context = DCtx::create();
    into_growing(guess, room, |out| match context.decompress(out, bytes) {
        Ok(len) => Ok(Attempt::Done(len)),
        Err(OUTPUT_TOO_SMALL) => Ok(Attempt::TooSmall),
        Err(code) => Err(DecompressError::Invalid {
            encoding: Encoding::Zstd,
            source: zstd_safe::get_error_name(code).into(),
        }),
    })
}

pub(super) fn lz4(plain: &[u8]) -> Vec<u8> {
    let mut encoder = FrameEncoder::new(Vec::with_capacity(plain.len() / 2));
    encoder
        .write_all(plain)
        .expect("writing to memory does not fail");
    encoder.finish().expect("writing to memory does not fail")
}

pub(super) fn unlz4(bytes: &[u8], room: &mut Room) -> Result<Vec<u8>, DecompressError> {
    read_all(
        Encoding::Lz4,
        FrameDecoder::new(bytes),
        bytes.len().saturating_mul(2),
        room,
    )
}
