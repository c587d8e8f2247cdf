//! The contents of a sample record of either layout.

use arrow_array::{ListViewArray, StringViewArray, UInt32Array, UInt64Array};
use arrow_schema::Schema;

use crate::columns::{Columns, Keyed};
use crate::error::RecordError;
use crate::schema::{VERSION_KEY, Version};

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
    /// Nanoseconds since the Unix epoch.
    pub timestamp: Vec<i64>,
    pub stacks: StackRefs,
}

/// The stacks of the rows.
pub enum StackRefs {
    /// Ids of stacks in another record.
    Ids(Keyed),
    Inline(Box<InlineStacks>),
}

/// The stacks of the rows of a record.
pub struct InlineStacks {
    pub(crate) stacks: ListViewArray,
    pub(crate) frames: UInt32Array,
    pub(crate) locations: Locations,
}

pub(crate) struct Locations {
    pub addresses: UInt64Array,
    pub kinds: Keyed,
    pub files: Keyed,
    pub build_ids: Keyed,
    pub line_lists: ListViewArray,
    pub lines: Lines,
}

pub(crate) struct Lines {
    pub lines: UInt64Array,
    pub columns: UInt64Array,
    pub functions: UInt32Array,
    pub names: StringViewArray,
    pub files: Keyed,
    pub start_lines: UInt64Array,
}

impl Samples {
    pub fn rows(&self) -> usize {
        self.values.len()
    }

    /// Reads the columns common to both layouts; `labels` and `stacks` read those that differ.
    pub(crate) fn read(
        columns: &Columns<'_>,
        labels: Vec<(String, Keyed)>,
        stacks: StackRefs,
        version: Version,
    ) -> Result<Self, RecordError> {
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

/// Rejects records of another layout.
pub fn check_version(schema: &Schema, expected: Version) -> Result<(), RecordError> {
    let version = schema.metadata().get(VERSION_KEY);
    let version = version.ok_or(RecordError::NoVersion)?;
    if version == expected.name() {
        return Ok(());
    }
    Err(RecordError::OtherVersion {
        found: version.clone(),
        expected: expected.name(),
    })
}
