//! The files of a directory, and the stored progress of each.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use profcol_component::files;
pub use profcol_parca::padata::Delivered;
use profcol_parca::padata::{created_seconds, progress_file};

/// Suffix of the progress file, which also has a leading dot.
const PROGRESS_FILE: &str = ".progress";
/// Suffix of the progress file while it is written.
const UNFINISHED: &str = ".unfinished";

/// The files of a directory, oldest first.
pub fn files(directory: &Path) -> io::Result<Vec<PathBuf>> {
    let mut files = entries(directory, &[".padata", ".padata.zst"])?;
    files.sort_by_key(|path| (created_seconds(path), path.clone()));
    // A crash during compression leaves both; the uncompressed file is complete.
    let plain: BTreeSet<PathBuf> = files.iter().cloned().collect();
    files.retain(|path| !(is_compressed(path) && plain.contains(&path.with_extension(""))));
    Ok(files)
}

/// Removes progress files without a recording, as a crash may leave them.
pub fn remove_orphans(directory: &Path) -> io::Result<()> {
    for note in entries(directory, &[PROGRESS_FILE, UNFINISHED])? {
        let name = note.file_name().unwrap_or_default().to_string_lossy();
        // Files without a leading dot belong to the recorder.
        let Some(file) = name.strip_prefix('.') else {
            continue;
        };
        let file = directory.join(
            file.trim_end_matches(PROGRESS_FILE)
                .trim_end_matches(UNFINISHED),
        );
        // In the order of compression: the file always exists under one of the names.
        if !file.exists() && !with_ending(&file, "zst").exists() {
            ignore_not_found(fs::remove_file(&note))?;
        }
    }
    Ok(())
}

fn entries(directory: &Path, endings: &[&str]) -> io::Result<Vec<PathBuf>> {
    let mut paths = Vec::new();
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        let name = path.file_name().and_then(|name| name.to_str());
        if name.is_some_and(|name| endings.iter().any(|ending| name.ends_with(ending))) {
            paths.push(path);
        }
    }
    Ok(paths)
}

pub fn is_compressed(path: &Path) -> bool {
    path.extension().is_some_and(|ending| ending == "zst")
}

/// The path with another suffix.
pub fn with_ending(path: &Path, ending: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".");
    name.push(ending);
    name.into()
}

/// The delivery progress of a file, stored next to it under a name that does not change when the file is
/// compressed.
pub struct Progress {
    path: PathBuf,
    unfinished: PathBuf,
}

impl Progress {
    pub fn of(file: &Path) -> Self {
        let path = progress_file(file);
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

    pub fn remove(&self) -> io::Result<()> {
        ignore_not_found(fs::remove_file(&self.unfinished))?;
        ignore_not_found(fs::remove_file(&self.path))
    }
}

pub fn ignore_not_found(done: io::Result<()>) -> io::Result<()> {
    match done {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        done => done,
    }
}
