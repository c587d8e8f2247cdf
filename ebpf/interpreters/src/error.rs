//! Why an interpreter, or a function of it, cannot be read.

use profcol_dotnet::DotNetError;

use crate::memory::MemoryError;

/// An unsupported interpreter, whose code shows as native frames.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{runtime} {version} is not supported: {why}")]
pub struct Unsupported {
    pub runtime: &'static str,
    pub version: String,
    pub why: &'static str,
}

impl Unsupported {
    /// Instead of a version that is not known.
    pub const UNKNOWN_VERSION: &'static str = "of an unknown version";

    /// None if it is not known.
    pub fn version(&self) -> Option<&str> {
        (self.version != Self::UNKNOWN_VERSION).then_some(&*self.version)
    }
}

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
