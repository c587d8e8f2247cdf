//! Validation errors and their location.
//!
//! The path is built while the error propagates, so that valid input does not pay for it.

use std::fmt;

use crate::proto::WireError;

/// Why a request was refused: `resource_profiles[3].scope_profiles[0].profiles[1].samples[12]
/// .stack_index 91 out of range (stacks: 40)`.
#[derive(Debug)]
pub struct Invalid(Box<InvalidField>);

#[derive(Debug)]
struct InvalidField {
    /// Innermost first.
    path: Vec<Segment>,
    fault: Fault,
}

#[derive(Clone, Copy, Debug)]
enum Segment {
    Field(&'static str),
    Item(&'static str, usize),
}

/// The fault in one field, row or sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Fault {
    #[error(transparent)]
    Wire(#[from] WireError),
    #[error(
        "OTLP profiles payload looks like opentelemetry-proto <= 1.9, which has an incompatible sample layout: update the sender to opentelemetry-proto 1.10"
    )]
    OldLayout,
    #[error("{index} out of range ({table}: {rows})")]
    OutOfRange {
        index: i32,
        table: &'static str,
        rows: u32,
    },
    #[error("{index} refers to an invalid row")]
    BadRow { index: u32, why: Reason },
    #[error("row 0 of a table must be its zero value")]
    NotZero,
    #[error("not UTF-8")]
    Utf8,
    #[error("has the same key as {list}[{first}]")]
    DuplicateKey { list: &'static str, first: usize },
    #[error("{len} bytes long, must be {expected} or empty")]
    IdLength { len: usize, expected: usize },
    #[error("must have a value or a timestamp")]
    NoObservation,
    #[error("{values} values without timestamps, must be one")]
    ManyValues { values: usize },
    #[error("{values} values but {timestamps} timestamps, must be equal")]
    Mismatch { values: usize, timestamps: usize },
    #[error("{timestamp} is outside the time range of its profile ({start} to {end})")]
    OutsideProfile {
        timestamp: u64,
        start: u64,
        end: u64,
    },
    #[error("memory_start {start:#x} is not below memory_limit {limit:#x}")]
    EmptyMapping { start: u64, limit: u64 },
    #[error("{line} is negative")]
    NegativeLine { line: i64 },
    #[error("must have a name, a system name or a file name")]
    Nameless,
    #[error("original_payload and original_payload_format must be given together")]
    HalfPayload,
}

/// Fault kinds, for counting.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Reason {
    Malformed,
    OldLayout,
    IndexOutOfRange,
    RowZero,
    Utf8,
    DuplicateKey,
    IdLength,
    SampleShape,
    Timestamp,
    MappingRange,
    NegativeLine,
    NamelessFunction,
    OriginalPayload,
}

// === impl Reason ===

impl Reason {
    /// The name in metrics and logs.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Malformed => "malformed",
            Self::OldLayout => "old_layout",
            Self::IndexOutOfRange => "index_out_of_range",
            Self::RowZero => "row_zero",
            Self::Utf8 => "utf8",
            Self::DuplicateKey => "duplicate_key",
            Self::IdLength => "id_length",
            Self::SampleShape => "sample_shape",
            Self::Timestamp => "timestamp",
            Self::MappingRange => "mapping_range",
            Self::NegativeLine => "negative_line",
            Self::NamelessFunction => "nameless_function",
            Self::OriginalPayload => "original_payload",
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

// === impl Fault ===

impl Fault {
    fn reason(self) -> Reason {
        match self {
            Self::Wire(_) => Reason::Malformed,
            Self::OldLayout => Reason::OldLayout,
            Self::OutOfRange { .. } => Reason::IndexOutOfRange,
            Self::BadRow { why, .. } => why,
            Self::NotZero => Reason::RowZero,
            Self::Utf8 => Reason::Utf8,
            Self::DuplicateKey { .. } => Reason::DuplicateKey,
            Self::IdLength { .. } => Reason::IdLength,
            Self::NoObservation | Self::ManyValues { .. } | Self::Mismatch { .. } => {
                Reason::SampleShape
            }
            Self::OutsideProfile { .. } => Reason::Timestamp,
            Self::EmptyMapping { .. } => Reason::MappingRange,
            Self::NegativeLine { .. } => Reason::NegativeLine,
            Self::Nameless => Reason::NamelessFunction,
            Self::HalfPayload => Reason::OriginalPayload,
        }
    }
}

// === impl Invalid ===

impl Invalid {
    pub fn reason(&self) -> Reason {
        self.0.fault.reason()
    }

    /// Whether the bytes cannot be decoded at all, so that repair is impossible.
    pub fn is_unreadable(&self) -> bool {
        matches!(self.0.fault, Fault::Wire(_) | Fault::OldLayout)
    }
}

impl<F: Into<Fault>> From<F> for Invalid {
    #[cold]
    fn from(fault: F) -> Self {
        Self(Box::new(InvalidField {
            path: Vec::new(),
            fault: fault.into(),
        }))
    }
}

impl std::error::Error for Invalid {}

impl fmt::Display for Invalid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let InvalidField { path, fault } = &*self.0;
        for (position, segment) in path.iter().rev().enumerate() {
            if position > 0 {
                f.write_str(".")?;
            }
            match segment {
                Segment::Field(name) => f.write_str(name)?,
                Segment::Item(name, index) => write!(f, "{name}[{index}]")?,
            }
        }
        match fault {
            _ if path.is_empty() => {}
            Fault::OutOfRange { .. } | Fault::BadRow { .. } => f.write_str(" ")?,
            _ => f.write_str(": ")?,
        }
        fault.fmt(f)
    }
}

/// Adds a path segment to an error.
pub(super) trait WithPath<T> {
    fn field(self, name: &'static str) -> Result<T, Invalid>;
    fn item(self, name: &'static str, index: usize) -> Result<T, Invalid>;
}

impl<T, E: Into<Invalid>> WithPath<T> for Result<T, E> {
    #[inline(always)]
    fn field(self, name: &'static str) -> Result<T, Invalid> {
        self.map_err(|error| within(error.into(), Segment::Field(name)))
    }

    #[inline(always)]
    fn item(self, name: &'static str, index: usize) -> Result<T, Invalid> {
        self.map_err(|error| within(error.into(), Segment::Item(name, index)))
    }
}

#[cold]
#[inline(never)]
fn within(mut invalid: Invalid, segment: Segment) -> Invalid {
    invalid.0.path.push(segment);
    invalid
}
