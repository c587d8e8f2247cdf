use crate::Unsupported;
use crate::memory::MemoryError;

/// Why a function, or the runtime that it needs, could not be read out of a process.
#[derive(Debug, thiserror::Error)]
pub enum FunctionError {
    #[error(transparent)]
    Memory(#[from] MemoryError),
    #[error("{0} in memory is not valid")]
    Invalid(&'static str),
    #[error("another function is at its address by now")]
    Replaced,
    #[error(transparent)]
    Unsupported(#[from] Unsupported),
}
