//! The content of a record: JSON or protobuf, possibly compressed.

use std::io::{self, Read};

use bytes::Bytes;
use profcol_otlp::json;
use profcol_profile::{Profiles, Received, Validation};

use super::config::Format;

const ZSTD_MAGIC: &[u8] = &[0x28, 0xb5, 0x2f, 0xfd];

/// Why a record is unusable.
#[derive(Debug, thiserror::Error)]
pub(super) enum RecordError {
    #[error("longer than `max_record_size`, which is {0} bytes")]
    TooLong(usize),
    #[error("cut short: the file ends within it")]
    Torn,
    #[error("failed to decompress: {0}")]
    Compressed(#[source] io::Error),
    #[error("not JSON, as `format` requires")]
    NotJson,
    #[error(transparent)]
    Json(#[from] json::JsonError),
    #[error(transparent)]
    Proto(#[from] profcol_profile::Invalid),
}

/// Decodes one record, without invalid samples, which are counted.
pub(super) fn decode(record: Bytes, format: Format, limit: usize) -> Result<Received, RecordError> {
    let body = if record.starts_with(ZSTD_MAGIC) {
        decompress(&record, limit)?
    } else {
        record
    };
    let looks_like_json = first_word(&body) == Some(b'{');
    match format {
        Format::Json if !looks_like_json => Err(RecordError::NotJson),
        Format::Json => Ok(json::receive(&body, Validation::Repair)?),
        Format::Auto if looks_like_json => Ok(json::receive(&body, Validation::Repair)?),
        Format::Auto | Format::Proto => Ok(Profiles::from_wire(body, Validation::Repair)?),
    }
}

/// The first byte that is not whitespace.
pub(super) fn first_word(bytes: &[u8]) -> Option<u8> {
    bytes
        .iter()
        .copied()
        .find(|byte| !byte.is_ascii_whitespace())
}

fn decompress(record: &[u8], limit: usize) -> Result<Bytes, RecordError> {
    let mut plain = Vec::new();
    let decoder = zstd::Decoder::with_buffer(record).map_err(RecordError::Compressed)?;
    let mut bounded = decoder.take(limit as u64 + 1);
    bounded
        .read_to_end(&mut plain)
        .map_err(RecordError::Compressed)?;
    if plain.len() > limit {
        return Err(RecordError::TooLong(limit));
    }
    Ok(plain.into())
}
