//! Errors of invalid files.

use std::io;

use profcol_profile::proto::WireError;

/// Why a file was rejected.
#[derive(Debug, thiserror::Error)]
pub enum PprofError {
    #[error("failed to decompress the profile: {0}")]
    Gzip(#[source] io::Error),
    #[error("the profile is larger than {limit} bytes")]
    TooLarge { limit: usize },
    #[error("malformed profile: {0}")]
    Malformed(#[from] Problem),
    #[error("malformed profile: {what} {position}: {problem}")]
    MalformedRow {
        what: &'static str,
        /// Index within its kind, from 0.
        position: usize,
        #[source]
        problem: Problem,
    },
}

/// The problem with the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    #[error(transparent)]
    Wire(#[from] WireError),
    #[error("the first string is not empty")]
    FirstString,
    #[error("the file contains two concatenated profiles")]
    Joined,
    #[error("string {row} is not in the string table, which has {rows} rows")]
    NoSuchString { row: u64, rows: usize },
    #[error("function {id} is not in the file")]
    NoSuchFunction { id: u64 },
    #[error("location {id} is not in the file")]
    NoSuchLocation { id: u64 },
    #[error("missing id")]
    NoId,
    #[error("duplicate id {id}")]
    IdTaken { id: u64 },
    #[error("{values} values for {types} sample types")]
    ValueCount { values: usize, types: usize },
    #[error("the profile exceeds the memory limit of {limit} bytes")]
    TooMuch { limit: usize },
}
