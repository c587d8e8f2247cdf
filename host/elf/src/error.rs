//! Why a file, or a part of it, cannot be read.

use std::io;

#[derive(Debug, thiserror::Error)]
pub enum ElfError {
    #[error("not an ELF file: missing magic number")]
    NotElf,
    #[error("unsupported ELF file: {why}")]
    Unsupported { why: &'static str },
    #[error("failed to read {what} at {offset:#x}: {error}")]
    Unreadable {
        what: &'static str,
        offset: u64,
        #[source]
        error: io::Error,
    },
    #[error("{what} at {offset:#x} has {size} bytes, more than the limit of {limit}")]
    TooLarge {
        what: &'static str,
        offset: u64,
        size: u64,
        limit: u64,
    },
    #[error(
        "{what} at {offset:#x} with {size} bytes extends beyond the end of the file at {length}"
    )]
    Outside {
        what: &'static str,
        offset: u64,
        size: u64,
        length: u64,
    },
}

pub(crate) fn unsupported(why: &'static str) -> ElfError {
    ElfError::Unsupported { why }
}
