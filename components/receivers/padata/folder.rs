//! Which files there are, and what is known of each.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use profcol_component::files;
pub use profcol_parca::padata::Delivered;
use profcol_parca::padata::{begun, note_of};

use super::config::After;

/// Behind the name of a file: not everything in the file could be read, or not everything was taken.
const DAMAGED: &str = "damaged";
const REFUSED: &str = "refused";

/// Behind the name of a file, with a dot before it: how far it was delivered.
const PROGRESS_FILE: &str = ".progress";
/// Behind it instead while the note is written.
const UNFINISHED: &str = ".unfinished";

/// The files of a folder, the oldest first.
pub fn files(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut files = entries(folder, &[".padata", ".padata.zst"])?;
    files.sort_by_key(|path| (begun(path), path.clone()));
    // A crash in the middle of compressing leaves both; the plain one is whole.
    let plain: BTreeSet<PathBuf> = files.iter().cloned().collect();
    files.retain(|path| !(is_compressed(path) && plain.contains(&path.with_extension(""))));
    Ok(files)
}

/// Removes notes of files that are gone, as a crash may leave them.
pub fn remove_orphans(folder: &Path) -> io::Result<()> {
    for note in entries(folder, &[PROGRESS_FILE, UNFINISHED])? {
        let name = note.file_name().unwrap_or_default().to_string_lossy();
        // What has no dot before it is a recorder's.
        let Some(file) = name.strip_prefix('.') else {
            continue;
        };
        let file = folder.join(
            file.trim_end_matches(PROGRESS_FILE)
                .trim_end_matches(UNFINISHED),
        );
        // In this order, which is that of compressing: it is there under one of its names.
        if !file.exists() && !with_ending(&file, "zst").exists() {
            gone_is_fine(fs::remove_file(&note))?;
        }
    }
    Ok(())
}

fn entries(folder: &Path, endings: &[&str]) -> io::Result<Vec<PathBuf>> {
    let mut paths = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let name = path.file_name().and_then(|name| name.to_str());
        if name.is_some_and(|name| endings.iter().any(|ending| name.ends_with(ending))) {
            paths.push(path);
        }
    }
    Ok(paths)
}

fn is_compressed(path: &Path) -> bool {
    path.extension().is_some_and(|ending| ending == "zst")
}

/// A path with one more ending.
fn with_ending(path: &Path, ending: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".");
    name.push(ending);
    name.into()
}

/// How far a file was delivered, kept beside it under a name that does not change when the file is
/// compressed.
pub struct Progress {
    path: PathBuf,
    unfinished: PathBuf,
}

impl Progress {
    pub fn of(file: &Path) -> Self {
        let path = note_of(file);
        Self {
            unfinished: path.with_extension(UNFINISHED.trim_start_matches('.')),
            path,
        }
    }

    pub fn read(&self) -> Delivered {
        let note = fs::read_to_string(&self.path).unwrap_or_default();
        Delivered::parse(&note)
    }

    pub fn write(&self, delivered: &Delivered) -> io::Result<()> {
        files::write(&self.unfinished, delivered.to_string())?;
        fs::rename(&self.unfinished, &self.path)
    }

    fn remove(&self) -> io::Result<()> {
        gone_is_fine(fs::remove_file(&self.unfinished))?;
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

impl End {
    pub fn name(self) -> &'static str {
        match self {
            Self::Delivered => "delivered",
            Self::Damaged => "damaged",
            Self::Refused => "refused",
        }
    }
}

/// Puts a file away that is not to be read again. What was not delivered as a whole is kept.
pub fn put_away(file: &Path, end: End, after: After, move_to: &Path) -> io::Result<()> {
    let progress = Progress::of(file);
    if !is_compressed(file) {
        // What a crash left behind of compressing it.
        gone_is_fine(fs::remove_file(with_ending(file, "zst")))?;
    }
    let suffix = match end {
        End::Delivered => None,
        End::Damaged => Some(DAMAGED),
        End::Refused => Some(REFUSED),
    };
    if let Some(suffix) = suffix {
        gone_is_fine(fs::rename(file, with_ending(file, suffix)))?;
        return progress.remove();
    }
    match after {
        After::Delete => gone_is_fine(fs::remove_file(file))?,
        After::Keep => return progress.write(&Delivered::Everything),
        After::Move => {
            files::create_directories(move_to)?;
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
