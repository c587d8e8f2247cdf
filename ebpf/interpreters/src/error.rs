//! The error of reading a function from a process.

use profcol_dotnet::DotNetError;

use crate::Unsupported;
use crate::memory::MemoryError;

/// Why a function, or its runtime, could not be read from a process.
#[derive(Debug, thiserror::Error)]
pub enum FunctionError {
    #[error(transparent)]
    Memory(#[from] MemoryError),
    #[error("invalid data in memory: {0}")]
    Invalid(&'static str),
    #[error("another function now has this address")]
    Replaced,
    #[error(transparent)]
    Assembly(#[from] DotNetError),
    #[error(transparent)]
    Unsupported(#[from] Unsupported),
}
