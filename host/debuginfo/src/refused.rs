//! Why nothing is taken out of a file.

use std::io;

#[derive(Debug, thiserror::Error)]
pub enum Refused {
    #[error("cannot read {what} at {offset:#x}: {error}")]
    Unreadable {
        what: &'static str,
        offset: u64,
        error: io::Error,
    },
    #[error("not an ELF file of a supported kind: {why}")]
    Unsupported { why: &'static str },
    #[error("{what} at {offset:#x} has {size} bytes, more than the limit of {limit}")]
    TooLarge {
        what: &'static str,
        offset: u64,
        size: u64,
        limit: u64,
    },
    #[error("{what} at {offset:#x} with {size} bytes ends outside of the file, which has {length}")]
    Outside {
        what: &'static str,
        offset: u64,
        size: u64,
        length: u64,
    },
    #[error("it has no DWARF, no symbol table and no Go pclntab")]
    NoNames,
    #[error("its DWARF is in .dwo files, and it has no symbols")]
    OnlySplit,
}

impl Refused {
    /// A short name to count by.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Unreadable { .. } => "unreadable",
            Self::Unsupported { .. } => "unsupported",
            Self::TooLarge { .. } | Self::Outside { .. } => "broken",
            Self::NoNames => "no_names",
            Self::OnlySplit => "split_dwarf",
        }
    }
}
