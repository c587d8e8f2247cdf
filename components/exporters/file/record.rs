//! The encoding of a batch in a file.
//!
//! Uncompressed JSON is a line. Other records are preceded by their length, four bytes big-endian,
//! so that a reader finds their end.

use profcol_otlp::json::{self, ResourceAttrEncoding};
use profcol_profile::Profiles;

use super::config::{Compression, Format};

/// Length of the prefix of records that are not lines.
pub(super) const PREFIX: usize = 4;

#[derive(Clone, Copy, Debug)]
pub(super) struct RecordFormat {
    pub(super) format: Format,
    pub(super) compression: Compression,
}

#[derive(Debug, thiserror::Error)]
pub(super) enum RecordError {
    #[error("failed to compress a batch: {0}")]
    Compress(#[source] std::io::Error),
    #[error("batch of {0} bytes exceeds the maximum record size")]
    TooLarge(usize),
}

impl RecordFormat {
    pub(super) fn is_lines(self) -> bool {
        self.format == Format::Json && self.compression == Compression::None
    }

    pub(super) fn encode(self, profiles: &Profiles) -> Result<Vec<u8>, RecordError> {
        match (self.format, self.compression) {
            (Format::Json, Compression::None) => {
                let mut line = to_json(profiles);
                line.push(b'\n');
                Ok(line)
            }
            (Format::Json, Compression::Zstd) => compressed(&to_json(profiles)),
            (Format::Proto, Compression::None) => with_length(&profiles.to_wire()),
            (Format::Proto, Compression::Zstd) => compressed(&profiles.to_wire()),
        }
    }
}

fn to_json(profiles: &Profiles) -> Vec<u8> {
    json::encode(profiles.model(), ResourceAttrEncoding::Plain)
}

fn compressed(plain: &[u8]) -> Result<Vec<u8>, RecordError> {
    let bytes = zstd::bulk::compress(plain, zstd::DEFAULT_COMPRESSION_LEVEL);
    with_length(&bytes.map_err(RecordError::Compress)?)
}

fn with_length(bytes: &[u8]) -> Result<Vec<u8>, RecordError> {
    let length = u32::try_from(bytes.len()).map_err(|_| RecordError::TooLarge(bytes.len()))?;
    let mut record = Vec::with_capacity(PREFIX + bytes.len());
    record.extend_from_slice(&length.to_be_bytes());
    record.extend_from_slice(bytes);
    Ok(record)
}
