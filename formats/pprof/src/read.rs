//! Reading a file: the header, then what samples point to, then the samples.
//!
//! A file may have its fields in any order and mostly has the strings last, so it is gone over once
//! for each of these.

use std::borrow::Cow;

use super::budget::Budget;
use super::format::{profile, value_type};
use super::gzip::{gunzip, is_gzip};
use super::header::profiles;
use super::samples::Reading;
use super::symbols::Symbols;
use profcol_profile::proto::tag::{LEN, wire_type};
use profcol_profile::proto::{Reader, WireError};
use profcol_profile::{Model, Profile, StringIdx, Value};

/// How much a file may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Of the file, decompressed.
    pub file_bytes: usize,
    /// Of what is made of it in memory: samples stand there for each sample type, text in each
    /// attribute.
    pub model_bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            file_bytes: 64 << 20,
            model_bytes: 256 << 20,
        }
    }
}

/// Why a file was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PprofError {
    #[error("failed to decompress the profile: {0}")]
    Gzip(String),
    #[error("the profile is larger than {limit} bytes")]
    TooLarge { limit: usize },
    #[error("malformed profile: {0}")]
    Malformed(#[from] Problem),
    #[error("malformed profile: {what} {position}: {problem}")]
    MalformedRow {
        what: &'static str,
        /// Among its kind, from 0.
        position: usize,
        problem: Problem,
    },
}

/// What is wrong in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    #[error(transparent)]
    Wire(#[from] WireError),
    #[error("the first string is not empty")]
    FirstString,
    #[error("two profiles are joined into one file")]
    Joined,
    #[error("string {row} is not in the string table, which has {rows} rows")]
    NoSuchString { row: u64, rows: usize },
    #[error("function {id} is not in the file")]
    NoSuchFunction { id: u64 },
    #[error("location {id} is not in the file")]
    NoSuchLocation { id: u64 },
    #[error("the id is missing")]
    NoId,
    #[error("duplicate id {id}")]
    IdTaken { id: u64 },
    #[error("there are {values} values for {types} sample types")]
    ValueCount { values: usize, types: usize },
    #[error("the profile takes more than {limit} bytes of memory")]
    TooMuch { limit: usize },
}

/// Reads a profile, compressed or not. It has neither a resource nor a scope name yet.
pub fn read(file: &[u8], limits: Limits) -> Result<Model, PprofError> {
    // Rows take at least a byte of the file, and are counted in 32 bits.
    let limit = limits.file_bytes.min(i32::MAX as usize);
    let file = if is_gzip(file) {
        Cow::Owned(gunzip(file, limit)?)
    } else if file.len() <= limit {
        Cow::Borrowed(file)
    } else {
        return Err(PprofError::TooLarge { limit });
    };
    let mut budget = Budget::new(limits.model_bytes);
    let mut header = Header::read(&file, &mut budget)?;
    let mut symbols = Symbols::new(std::mem::take(&mut header.texts), budget);
    symbols.read(&file)?;
    let samples = Reading::new(&mut symbols, header.sample_types.len()).read(&file)?;
    Ok(profiles(&header, symbols, samples)?)
}

/// Hands every field `wanted` of the file to `read`.
pub(super) fn each<'a>(
    file: &'a [u8],
    wanted: u32,
    what: &'static str,
    mut read: impl FnMut(Reader<'a>) -> Result<(), Problem>,
) -> Result<(), PprofError> {
    let mut position = 0;
    let mut reader = Reader::new(file);
    while let Some(tag) = reader.tag().map_err(Problem::from)? {
        if tag == wanted {
            let message = reader.message().map_err(Problem::from)?;
            read(message).map_err(|problem| PprofError::MalformedRow {
                what,
                position,
                problem,
            })?;
            position += 1;
        } else if wire_type(tag) == LEN {
            reader.bytes().map_err(Problem::from)?;
        } else {
            reader.skip(tag, 0).map_err(Problem::from)?;
        }
    }
    Ok(())
}

/// The fields beside the tables and samples; text is by row of the file's string table.
#[derive(Default)]
pub(super) struct Header<'a> {
    pub sample_types: Vec<TypeRows>,
    pub default_sample_type: u64,
    pub time: i64,
    pub duration: i64,
    pub period_type: Option<TypeRows>,
    pub period: i64,
    pub comments: Vec<u64>,
    pub drop_frames: u64,
    pub keep_frames: u64,
    pub doc_url: u64,
    texts: Vec<&'a [u8]>,
}

#[derive(Clone, Copy, Default)]
pub(super) struct TypeRows {
    pub kind: u64,
    pub unit: u64,
}

impl<'a> Header<'a> {
    fn read(file: &'a [u8], budget: &mut Budget) -> Result<Self, Problem> {
        /// A row here and its place in our own table.
        const STRING: usize = size_of::<&[u8]>() + size_of::<StringIdx>();
        const COMMENT: usize = size_of::<u64>() + size_of::<Value>();
        let mut header = Self::default();
        let mut reader = Reader::new(file);
        while let Some(tag) = reader.tag()? {
            match tag {
                profile::SAMPLE | profile::MAPPING | profile::LOCATION | profile::FUNCTION => {
                    reader.bytes()?;
                }
                profile::STRING => {
                    budget.reserve(STRING)?;
                    header.texts.push(reader.bytes()?);
                }
                profile::SAMPLE_TYPE => {
                    budget.reserve(size_of::<TypeRows>() + 2 * size_of::<Profile>())?;
                    header.sample_types.push(TypeRows::read(reader.message()?)?);
                }
                profile::DROP_FRAMES => header.drop_frames = reader.varint()?,
                profile::KEEP_FRAMES => header.keep_frames = reader.varint()?,
                profile::TIME if header.time != 0 => return Err(Problem::Joined),
                profile::TIME => header.time = reader.int64()?,
                profile::DURATION => header.duration = reader.int64()?,
                profile::PERIOD_TYPE => {
                    header.period_type = Some(TypeRows::read(reader.message()?)?);
                }
                profile::PERIOD => header.period = reader.int64()?,
                profile::COMMENT => {
                    budget.reserve(COMMENT)?;
                    header.comments.push(reader.varint()?);
                }
                profile::COMMENTS => {
                    let mut list = reader.message()?;
                    while !list.rest().is_empty() {
                        budget.reserve(COMMENT)?;
                        header.comments.push(list.varint()?);
                    }
                }
                profile::DEFAULT_SAMPLE_TYPE => header.default_sample_type = reader.varint()?,
                profile::DOC_URL => header.doc_url = reader.varint()?,
                unknown => reader.skip(unknown, profile::KNOWN)?,
            }
        }
        match header.texts.first() {
            Some(first) if !first.is_empty() => Err(Problem::FirstString),
            _ => Ok(header),
        }
    }
}

impl TypeRows {
    fn read(mut message: Reader<'_>) -> Result<Self, WireError> {
        let mut row = Self::default();
        while let Some(tag) = message.tag()? {
            match tag {
                value_type::KIND => row.kind = message.varint()?,
                value_type::UNIT => row.unit = message.varint()?,
                unknown => message.skip(unknown, value_type::KNOWN)?,
            }
        }
        Ok(row)
    }
}
