//! Why nothing can be extracted from a file.

use profcol_elf::ElfError;

const UNREADABLE: &str = "unreadable";
const UNSUPPORTED: &str = "unsupported";
const BROKEN: &str = "broken";
const NO_NAMES: &str = "no_names";
const SPLIT_DWARF: &str = "split_dwarf";

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
    /// All that [`reason`](Self::reason) returns.
    pub const REASONS: [&str; 5] = [UNREADABLE, UNSUPPORTED, BROKEN, NO_NAMES, SPLIT_DWARF];

    /// A short name for metrics.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Elf(ElfError::Unreadable { .. }) => UNREADABLE,
            Self::Elf(ElfError::NotElf | ElfError::Unsupported { .. }) => UNSUPPORTED,
            Self::Elf(ElfError::TooLarge { .. } | ElfError::Outside { .. }) => BROKEN,
            Self::NoNames => NO_NAMES,
            Self::OnlySplit => SPLIT_DWARF,
        }
    }
}
