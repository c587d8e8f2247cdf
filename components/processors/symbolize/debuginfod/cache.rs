//! The disk cache of debuginfod files.

use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use profcol_component::IntCounter;
use profcol_debuginfo::build_id;
use profcol_elf::{hex, open_regular};
use tempfile::NamedTempFile;

use super::{FileKind, FileRequest};

/// Prefix of files being downloaded.
const INCOMING: &str = "incoming-";

/// A directory in which our files are limited to a total size. Other files are left alone.
pub(super) struct Cache {
    directory: PathBuf,
    max_bytes: u64,
    evicted: IntCounter,
}

impl Cache {
    pub fn new(directory: &str, max_bytes: u64, evicted: IntCounter) -> Self {
        let directory = directory.into();
        Self {
            directory,
            max_bytes,
            evicted,
        }
    }

    pub fn directory(&self) -> &Path {
        &self.directory
    }

    pub fn max_bytes(&self) -> u64 {
        self.max_bytes
    }

    /// Keeps the files of earlier runs, up to the limit.
    pub fn begin(&self) -> io::Result<()> {
        let mut builder = DirBuilder::new();
        builder.recursive(true).mode(0o700);
        builder.create(&self.directory)?;
        self.trim(None)
    }

    /// The file, if it is cached with the right build ID.
    pub fn open(&self, wanted: &FileRequest) -> Option<File> {
        let name = name(wanted);
        let file = open_regular(&self.directory, Path::new(&name)).ok()?;
        if !is(&file, wanted) {
            // A wrong file blocks the name. If removing it fails, it is rejected again next time.
            let _removed = fs::remove_file(self.directory.join(name));
            return None;
        }
        // For eviction by age. Failure only means an earlier eviction.
        let _touched = file.set_modified(SystemTime::now());
        Some(file)
    }

    /// A file that is deleted unless kept.
    pub fn create(&self) -> io::Result<NamedTempFile> {
        NamedTempFile::with_prefix_in(INCOMING, &self.directory)
    }

    /// Gives the file its final name; returns false if its build ID differs.
    pub fn keep(&self, file: NamedTempFile, wanted: &FileRequest) -> io::Result<bool> {
        if !is(file.as_file(), wanted) {
            return Ok(false);
        }
        file.persist(self.directory.join(name(wanted)))
            .map_err(|failed| failed.error)?;
        Ok(true)
    }

    /// Evicts the oldest files to stay within the limit, but never `incoming`.
    pub fn trim(&self, incoming: Option<&Path>) -> io::Result<()> {
        let (mut total, mut files) = (0, Vec::new());
        for entry in fs::read_dir(&self.directory)? {
            let entry = entry?;
            // It may have been deleted meanwhile.
            if entry.file_name().to_str().is_some_and(is_ours)
                && let Ok(metadata) = entry.metadata()
                && metadata.is_file()
            {
                total += metadata.len();
                files.push((metadata.modified()?, metadata.len(), entry.path()));
            }
        }
        files.retain(|(_, _, path)| Some(path.as_path()) != incoming);
        files.sort_unstable();
        for (_, length, path) in files {
            if total <= self.max_bytes {
                break;
            }
            match fs::remove_file(path) {
                Ok(()) => self.evicted.inc(),
                // The processor of another pipeline deleted it first.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
            total -= length;
        }
        Ok(())
    }
}

fn name(wanted: &FileRequest) -> String {
    format!("{}.{}", wanted.build_id, wanted.what.name())
}

fn is_ours(name: &str) -> bool {
    let is_whole = name.rsplit_once('.').is_some_and(|(id, what)| {
        let names = [FileKind::DebugInfo, FileKind::Executable].map(FileKind::name);
        id.bytes().all(|it| it.is_ascii_hexdigit()) && names.contains(&what)
    });
    is_whole || name.starts_with(INCOMING)
}

fn is(file: &File, wanted: &FileRequest) -> bool {
    build_id(file).is_some_and(|id| hex(&id) == *wanted.build_id)
}
