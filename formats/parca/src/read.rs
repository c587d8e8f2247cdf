//! Reads a record of either layout.

use arrow_array::RecordBatch;

use crate::error::RecordError;
use crate::samples::Samples;
use crate::schema::Version;
use crate::{v1, v2};

/// Reads samples of either layout.
pub fn read_samples(batch: &RecordBatch) -> Result<Samples, RecordError> {
    match Version::of(batch.schema_ref()) {
        Some(Version::V2) => v2::read_samples(batch),
        _ => v1::read_samples(batch),
    }
}
