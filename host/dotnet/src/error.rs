//! Why an assembly, or a part of one, cannot be read.

use profcol_elf::ElfError;

#[derive(Debug, thiserror::Error)]
pub enum DotNetError {
    #[error("not a .NET assembly: {why}")]
    NotAssembly { why: &'static str },
    #[error("unsupported .NET file: {why}")]
    Unsupported { why: &'static str },
    #[error("damaged .NET file: {what}")]
    Damaged { what: &'static str },
    #[error("the PDB is of another build")]
    OtherPdb,
    /// From reading a range, whatever the format.
    #[error(transparent)]
    Unreadable(#[from] ElfError),
}

pub(crate) fn not_assembly(why: &'static str) -> DotNetError {
    DotNetError::NotAssembly { why }
}

pub(crate) fn unsupported(why: &'static str) -> DotNetError {
    DotNetError::Unsupported { why }
}

pub(crate) fn damaged(what: &'static str) -> DotNetError {
    DotNetError::Damaged { what }
}
