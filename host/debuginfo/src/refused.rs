//! Why nothing is taken out of a file.

use profcol_elf::ElfError;

#[derive(Debug, thiserror::Error)]
pub enum Refused {
    #[error(transparent)]
    Elf(#[from] ElfError),
    #[error("it has no DWARF, no symbol table and no Go pclntab")]
    NoNames,
    #[error("its DWARF is in .dwo files, and it has no symbols")]
    OnlySplit,
}

impl Refused {
    /// A short name to count by.
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
