//! Why a file, or a part of it, is not read.

use std::io;

#[derive(Debug, thiserror::Error)]
pub enum ElfError {
    #[error("not an ELF file: shorter than ELF's magic number, or it begins with something else")]
    NotElf,
    #[error("not an ELF file of a supported kind: {why}")]
    Unsupported { why: &'static str },
    #[error("cannot read {what} at {offset:#x}: {error}")]
    Unreadable {
        what: &'static str,
        offset: u64,
        error: io::Error,
    },
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
}

pub(crate) fn unsupported(why: &'static str) -> ElfError {
    ElfError::Unsupported { why }
}
