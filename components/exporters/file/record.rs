//! How a batch stands in a file.
//!
//! Plain JSON is a line. Everything else is bytes preceded by their number, four bytes with the
//! most significant first, so that a reader knows where a record ends.

use profcol_profile::Profiles;
use profcol_profile::json::{self, ResourceAttrEncoding};

use super::config::{Compression, Format};

/// Bytes before each record that is not a line.
pub(super) const PREFIX: usize = 4;

#[derive(Clone, Copy, Debug)]
pub(super) struct RecordFormat {
    pub(super) format: Format,
    pub(super) compression: Compression,
}

#[derive(Debug, thiserror::Error)]
pub(super) enum RecordError {
    #[error("failed to compress a batch: {0}")]
    Compress(std::io::Error),
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
