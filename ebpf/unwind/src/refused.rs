//! Why a file has no table.

use profcol_elf::ElfError;

#[derive(Debug, thiserror::Error)]
pub enum Refused {
    #[error(transparent)]
    Elf(#[from] ElfError),
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
            Self::Elf(ElfError::Unreadable { .. }) => "unreadable",
            Self::Elf(ElfError::NotElf) => "not_elf",
            Self::Elf(ElfError::Unsupported { .. }) | Self::Unsupported { .. } => "unsupported",
            Self::Elf(ElfError::TooLarge { .. }) | Self::TooLarge { .. } => "too_large",
            Self::Elf(ElfError::Outside { .. }) | Self::Broken { .. } => "broken",
        }
    }
}
