//! Which files there are, and what is known of each.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use profcol_parca::padata::begun;

use super::config::After;

/// Behind a name: not everything in the file could be read, or not everything was taken.
const DAMAGED: &str = "damaged";
const REFUSED: &str = "refused";

const COMPLETE: &str = "complete";

/// The files of a folder, the oldest first.
pub fn files(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let name = path.file_name().and_then(|name| name.to_str());
        if name.is_some_and(|name| name.ends_with(".padata") || name.ends_with(".padata.zst")) {
            files.push(path);
        }
    }
    files.sort_by_key(|path| (begun(path), path.clone()));
    Ok(files)
}

/// A file that nobody else writes or reads; none where somebody does, or where it is gone.
pub fn open(path: &Path) -> io::Result<Option<File>> {
    match File::open(path) {
        Ok(file) => Ok(file.try_lock().is_ok().then_some(file)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// How far a file was delivered, kept beside it under a name that does not change when the file is
/// compressed.
pub struct Progress {
    path: PathBuf,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Delivered {
    Batches {
        /// It is known what became of the first so many batches.
        settled: u16,
        /// Those of them that a destination refused for ever.
        refused: BTreeSet<u16>,
    },
    Everything,
}

impl Progress {
    pub fn of(file: &Path) -> Self {
        let name = file.file_name().unwrap_or_default().to_string_lossy();
        let stem = name.trim_end_matches(".zst");
        Self {
            path: file.with_file_name(format!(".{stem}.progress")),
        }
    }

    pub fn read(&self) -> Delivered {
        let text = fs::read_to_string(&self.path).unwrap_or_default();
        let mut lines = text.lines().map(str::trim);
        let settled = match lines.next().unwrap_or_default() {
            COMPLETE => return Delivered::Everything,
            number => number.parse().unwrap_or(0),
        };
        let refused = lines.find_map(|line| line.strip_prefix(REFUSED));
        let refused = refused.unwrap_or_default().split_whitespace();
        Delivered::Batches {
            settled,
            refused: refused.filter_map(|number| number.parse().ok()).collect(),
        }
    }

    pub fn write(&self, delivered: &Delivered) -> io::Result<()> {
        let text = match delivered {
            Delivered::Batches { settled, refused } => {
                let mut text = format!("{settled}\n");
                if !refused.is_empty() {
                    text += REFUSED;
                    refused
                        .iter()
                        .for_each(|number| text += &format!(" {number}"));
                    text += "\n";
                }
                text
            }
            Delivered::Everything => format!("{COMPLETE}\n"),
        };
        let unfinished = self.path.with_extension("unfinished");
        fs::write(&unfinished, text)?;
        fs::rename(unfinished, &self.path)
    }

    fn remove(&self) -> io::Result<()> {
        gone_is_fine(fs::remove_file(&self.path))
    }
}

/// How a file ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    Delivered,
    /// Something in it could not be read.
    Damaged,
    /// Something in it was refused for ever.
    Refused,
}

/// Puts a file away that is not to be read again. What was not delivered as a whole is kept.
pub fn put_away(file: &Path, end: End, after: After, move_to: &Path) -> io::Result<()> {
    let progress = Progress::of(file);
    let suffix = match end {
        End::Delivered => None,
        End::Damaged => Some(DAMAGED),
        End::Refused => Some(REFUSED),
    };
    if let Some(suffix) = suffix {
        let mut name = file.as_os_str().to_owned();
        name.push(".");
        name.push(suffix);
        gone_is_fine(fs::rename(file, name))?;
        return progress.remove();
    }
    match after {
        After::Delete => gone_is_fine(fs::remove_file(file))?,
        After::Keep => return progress.write(&Delivered::Everything),
        After::Move => {
            fs::create_dir_all(move_to)?;
            let name = file.file_name().unwrap_or_default();
            gone_is_fine(fs::rename(file, move_to.join(name)))?;
        }
    }
    progress.remove()
}

fn gone_is_fine(done: io::Result<()>) -> io::Result<()> {
    match done {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        done => done,
    }
}
