//! A file of several OTLP messages, as the exporter `file` and `profcol storage inspect --export` write them: lines of
//! JSON, or length-prefixed records, optionally compressed.

use bytes::Bytes;
use profcol_otlp::json;
use profcol_profile::{Model, Profiles, Validation};

use super::ReadError;
use super::compressed::{ZSTD, decompress};

const LENGTH: usize = 4;

/// Why a record is not OTLP.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    #[error("the file ends within it")]
    Torn,
    #[error(transparent)]
    Json(#[from] json::JsonError),
    #[error(transparent)]
    Proto(#[from] profcol_profile::Invalid),
    #[error("{0}")]
    Compressed(Box<ReadError>),
}

/// The first line decides: it is a whole message, and there are others.
pub(super) fn is_lines(content: &[u8]) -> bool {
    let mut lines = filled_lines(content);
    let first = lines.next().is_some_and(|(_, it)| json::decode(it).is_ok());
    first && lines.next().is_some()
}

pub(super) fn lines(content: &[u8]) -> Result<Model, ReadError> {
    let batches = filled_lines(content).map(|(number, line)| {
        let received = json::receive(line, Validation::Reject);
        let received = received.map_err(|error| ReadError::Line {
            line: number + 1,
            error: error.into(),
        });
        Ok(received?.profiles)
    });
    merged(batches)
}

fn filled_lines(content: &[u8]) -> impl Iterator<Item = (usize, &[u8])> {
    let lines = content.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii);
    lines.enumerate().filter(|(_, line)| !line.is_empty())
}

/// Whether the file may begin with a record after its length.
pub(super) fn is_records(content: &[u8]) -> bool {
    next(content).is_some_and(|(record, _)| {
        record.starts_with(&ZSTD) || record.first() == Some(&b'{') || is_whole(content)
    })
}

fn is_whole(mut content: &[u8]) -> bool {
    while let Some((_, rest)) = next(content) {
        content = rest;
    }
    content.is_empty()
}

pub(super) fn records(content: &[u8], max_bytes: usize) -> Result<Model, ReadError> {
    let mut rest = content;
    let mut free_bytes = max_bytes;
    let batches = std::iter::from_fn(|| {
        let at = content.len() - rest.len();
        let decoded = match next(rest) {
            None if rest.is_empty() => return None,
            None => Err(RecordError::Torn),
            Some((record, after)) => {
                rest = after;
                decode(record, &mut free_bytes)
            }
        };
        Some(decoded.map_err(|error| ReadError::Record { at, error }))
    });
    merged(batches)
}

fn next(content: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, rest) = content.split_first_chunk::<LENGTH>()?;
    rest.split_at_checked(u32::from_be_bytes(*length) as usize)
}

/// `free_bytes` is for the decompressed rest of the file.
fn decode(record: &[u8], free_bytes: &mut usize) -> Result<Profiles, RecordError> {
    let plain = match record.starts_with(&ZSTD) {
        true => {
            let plain = decompress(record, *free_bytes);
            plain.map_err(|error| RecordError::Compressed(Box::new(error)))?
        }
        false => record.to_vec(),
    };
    *free_bytes = free_bytes.saturating_sub(plain.len());
    if plain.first() == Some(&b'{') {
        return Ok(json::receive(&plain, Validation::Reject)?.profiles);
    }
    Ok(Profiles::from_wire(Bytes::from(plain), Validation::Reject)?.profiles)
}

/// Until the first error.
fn merged(batches: impl Iterator<Item = Result<Profiles, ReadError>>) -> Result<Model, ReadError> {
    let mut failure = None;
    let decoded = batches.map_while(|batch| batch.map_err(|error| failure = Some(error)).ok());
    let merged = Profiles::merge(decoded);
    match failure {
        None => Ok(merged.into_model()),
        Some(error) => Err(error),
    }
}
