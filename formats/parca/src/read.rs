//! What a record of samples says, whatever its layout.

use arrow_array::RecordBatch;
use arrow_schema::{DataType, Schema};

use crate::columns::{Columns, Keyed};
use crate::ipc::BadRecord;
use crate::schema::{VERSION_KEY, Version};
use crate::v1;
use crate::v2::{self, InlineStacks};

/// The rows of a record of samples.
pub struct Samples {
    pub labels: Vec<(String, Keyed)>,
    pub values: Vec<i64>,
    pub producer: Keyed,
    pub sample_type: Keyed,
    pub sample_unit: Keyed,
    pub period_type: Keyed,
    pub period_unit: Keyed,
    pub period: Vec<i64>,
    pub duration: Vec<i64>,
    /// Nanoseconds since 1970.
    pub timestamp: Vec<i64>,
    pub stacks: StackRefs,
}

/// Where the stacks of the rows are.
pub enum StackRefs {
    /// In another record, under these ids.
    Ids(Keyed),
    Inline(Box<InlineStacks>),
}

/// Why a record is refused.
#[derive(Debug, thiserror::Error)]
pub enum Refused {
    #[error(transparent)]
    Bytes(#[from] BadRecord),
    #[error("the record has no rows at all")]
    NoBatch,
    #[error("the schema has no {VERSION_KEY:?}")]
    NoVersion,
    #[error("{VERSION_KEY:?} is {found:?}, expected {expected:?}")]
    OtherVersion {
        found: String,
        expected: &'static str,
    },
    #[error("missing column {column:?}")]
    Missing { column: String },
    #[error("column {column:?} is {found}, expected {expected}")]
    Kind {
        column: String,
        found: DataType,
        expected: &'static str,
    },
    #[error("column {column:?} is null in row {row}")]
    Nothing { column: String, row: usize },
    #[error("{0}")]
    Shape(String),
    #[error("missing stack {id}: a sample refers to it")]
    NoStack { id: String },
}

impl Samples {
    pub fn rows(&self) -> usize {
        self.values.len()
    }

    /// Reads the columns that both layouts have; `labels` and `stacks` are those that differ.
    pub(crate) fn read(
        columns: &Columns<'_>,
        labels: Vec<(String, Keyed)>,
        stacks: StackRefs,
        version: Version,
    ) -> Result<Self, Refused> {
        let text = |name: &str| match version {
            Version::V1 => columns.column(name)?.runs()?.binary_dictionary(),
            Version::V2 => columns.column(name)?.runs()?.texts(),
        };
        let numbers = |name: &str| columns.column(name)?.runs()?.int64();
        Ok(Self {
            labels,
            values: columns.column("value")?.int64()?,
            producer: text("producer")?,
            sample_type: text("sample_type")?,
            sample_unit: text("sample_unit")?,
            period_type: text("period_type")?,
            period_unit: text("period_unit")?,
            period: numbers("period")?,
            duration: match version {
                Version::V1 => numbers("duration")?,
                Version::V2 => columns.column("duration")?.runs()?.uint64_as_signed()?,
            },
            timestamp: match version {
                Version::V1 => numbers("timestamp")?,
                Version::V2 => columns.column("timestamp")?.nanoseconds()?,
            },
            stacks,
        })
    }
}

/// Refuses records of another layout.
pub fn check_version(schema: &Schema, expected: Version) -> Result<(), Refused> {
    let found = schema.metadata().get(VERSION_KEY);
    let found = found.ok_or(Refused::NoVersion)?;
    if found == expected.name() {
        return Ok(());
    }
    Err(Refused::OtherVersion {
        found: found.clone(),
        expected: expected.name(),
    })
}

/// Reads samples of either layout.
pub fn read_samples(batch: &RecordBatch) -> Result<Samples, Refused> {
    match Version::of(batch.schema_ref()) {
        Some(Version::V2) => v2::read_samples(batch),
        _ => v1::read_samples(batch),
    }
}
