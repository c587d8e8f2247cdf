//! Errors of invalid records.

use arrow_schema::DataType;

use crate::ipc::BadRecord;
use crate::schema::VERSION_KEY;

/// Why a record is rejected.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    #[error(transparent)]
    Ipc(#[from] BadRecord),
    #[error("the record has no rows")]
    Empty,
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
    Null { column: String, row: usize },
    #[error("{0}")]
    Layout(String),
    #[error("missing stack {id}: a sample refers to it")]
    MissingStack { id: String },
}
