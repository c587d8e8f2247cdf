//! Why nothing can be extracted from a file.

use profcol_elf::ElfError;

#[derive(Debug, thiserror::Error)]
pub enum ExtractError {
    #[error(transparent)]
    Elf(#[from] ElfError),
    #[error("no DWARF, no symbol table and no Go pclntab")]
    NoNames,
    #[error("DWARF only in .dwo files, and no symbols")]
    OnlySplit,
}

impl ExtractError {
    /// A short name for metrics.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Elf(ElfError::Unreadable { .. }) => "unreadable",
            Self::Elf(ElfError::NotElf | ElfError::Unsupported { .. }) => "unsupported",
            Self::Elf(ElfError::TooLarge { .. } | ElfError::Outside { .. }) => "broken",
            Self::NoNames => "no_names",
            Self::OnlySplit => "split_dwarf",
        }
    }
}
