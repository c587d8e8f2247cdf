//! Finishes a file that was read: deletes, moves or renames it.

use std::fs;
use std::io;
use std::path::Path;

use profcol_component::files;
use profcol_padata::{Delivered, Progress, ignore_not_found, is_compressed, with_ending};

use super::config::AfterDelivery;

/// Suffixes for files that could not be fully read or delivered.
const DAMAGED: &str = "damaged";
const REFUSED: &str = "refused";

/// How reading a file ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    Delivered,
    /// Part of it was unreadable.
    Damaged,
    /// Part of it was permanently refused.
    Refused,
}

impl End {
    pub fn name(self) -> &'static str {
        match self {
            Self::Delivered => "delivered",
            Self::Damaged => "damaged",
            Self::Refused => "refused",
        }
    }
}

/// Finishes a file that must not be read again. A file that was not fully delivered is kept.
pub fn finish_file(file: &Path, end: End, after: AfterDelivery, move_to: &Path) -> io::Result<()> {
    let progress = Progress::of(file);
    if !is_compressed(file) {
        // What a crash left behind of compressing it.
        ignore_not_found(fs::remove_file(with_ending(file, "zst")))?;
    }
    let suffix = match end {
        End::Delivered => None,
        End::Damaged => Some(DAMAGED),
        End::Refused => Some(REFUSED),
    };
    if let Some(suffix) = suffix {
        ignore_not_found(fs::rename(file, with_ending(file, suffix)))?;
        return progress.remove();
    }
    match after {
        AfterDelivery::Delete => ignore_not_found(fs::remove_file(file))?,
        AfterDelivery::Keep => return progress.write(&Delivered::Everything),
        AfterDelivery::Move => {
            files::create_directories(move_to)?;
            let name = file.file_name().unwrap_or_default();
            ignore_not_found(fs::rename(file, move_to.join(name)))?;
        }
    }
    progress.remove()
}
