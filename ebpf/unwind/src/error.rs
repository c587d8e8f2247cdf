//! Why a file has no table.

use profcol_elf::ElfError;

#[derive(Debug, thiserror::Error)]
pub enum UnwindTableError {
    #[error(transparent)]
    Elf(#[from] ElfError),
    #[error("not a supported executable ELF file: {why}")]
    Unsupported { why: &'static str },
    #[error("{what} is {size}, over the limit of {limit}")]
    TooLarge {
        what: &'static str,
        size: u64,
        limit: u64,
    },
    #[error("{what} is broken")]
    Broken { what: &'static str },
}

impl UnwindTableError {
    /// A short reason, for counters.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Elf(ElfError::Unreadable { .. }) => "unreadable",
            Self::Elf(ElfError::NotElf) => "not_elf",
            Self::Elf(ElfError::Unsupported { .. }) | Self::Unsupported { .. } => "unsupported",
            Self::Elf(ElfError::TooLarge { .. }) | Self::TooLarge { .. } => "too_large",
            Self::Elf(ElfError::Outside { .. }) | Self::Broken { .. } => "broken",
        }
    }
}
