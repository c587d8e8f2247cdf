//! Why a file has no table.

use std::io;

#[derive(Debug, thiserror::Error)]
pub enum Refused {
    #[error("cannot read {what}: {error}")]
    Unreadable {
        what: &'static str,
        error: io::Error,
    },
    #[error("not an ELF file")]
    NotElf,
    #[error("not an executable ELF file of a supported kind: {why}")]
    Unsupported { why: &'static str },
    #[error("{what} is {size}, more than the {limit} that are read")]
    TooLarge {
        what: &'static str,
        size: u64,
        limit: u64,
    },
    #[error("{what} is broken")]
    Broken { what: &'static str },
}

impl Refused {
    /// A short name to count by.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Unreadable { .. } => "unreadable",
            Self::NotElf => "not_elf",
            Self::Unsupported { .. } => "unsupported",
            Self::TooLarge { .. } => "too_large",
            Self::Broken { .. } => "broken",
        }
    }
}
