//! Files of debuginfod servers on disk.

use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use profcol_component::IntCounter;
use profcol_debuginfo::{build_id, open_regular};
use tempfile::NamedTempFile;

use super::{Wanted, What};
use crate::values::hex;

/// What the name of a file begins with while it comes.
const INCOMING: &str = "incoming-";

/// A folder in which our files take no more bytes than they may. Others' are left alone.
pub(super) struct Cache {
    directory: PathBuf,
    most: u64,
    evicted: IntCounter,
}

impl Cache {
    pub fn new(directory: &str, most: u64, evicted: IntCounter) -> Self {
        let directory = directory.into();
        Self {
            directory,
            most,
            evicted,
        }
    }

    pub fn most(&self) -> u64 {
        self.most
    }

    /// What was there of an earlier run is kept, as far as it has room.
    pub fn begin(&self) -> io::Result<()> {
        let mut builder = DirBuilder::new();
        builder.recursive(true).mode(0o700);
        builder.create(&self.directory)?;
        self.trim(None)
    }

    /// The file, if it is there and is the one that was asked for.
    pub fn open(&self, wanted: &Wanted) -> Option<File> {
        let name = name(wanted);
        let file = open_regular(&self.directory, Path::new(&name)).ok()?;
        if !is(&file, wanted) {
            // Whatever it is, it is in the way. If it stays, it is found again, and not used again.
            let _removed = fs::remove_file(self.directory.join(name));
            return None;
        }
        // The oldest go first. Without this it goes earlier than it should.
        let _touched = file.set_modified(SystemTime::now());
        Some(file)
    }

    /// A file that is gone again unless it is kept.
    pub fn create(&self) -> io::Result<NamedTempFile> {
        NamedTempFile::with_prefix_in(INCOMING, &self.directory)
    }

    /// Under its own name from now on; false where it is not the one that was asked for.
    pub fn keep(&self, file: NamedTempFile, wanted: &Wanted) -> io::Result<bool> {
        if !is(file.as_file(), wanted) {
            return Ok(false);
        }
        file.persist(self.directory.join(name(wanted)))
            .map_err(|failed| failed.error)?;
        Ok(true)
    }

    /// Removes the oldest until the rest has room, but never `incoming`.
    pub fn trim(&self, incoming: Option<&Path>) -> io::Result<()> {
        let (mut total, mut files) = (0, Vec::new());
        for entry in fs::read_dir(&self.directory)? {
            let entry = entry?;
            // It may have gone meanwhile.
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
            if total <= self.most {
                break;
            }
            match fs::remove_file(path) {
                Ok(()) => self.evicted.inc(),
                // The processor of another pipeline was faster.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
            total -= length;
        }
        Ok(())
    }
}

fn name(wanted: &Wanted) -> String {
    format!("{}.{}", wanted.build_id, wanted.what.name())
}

fn is_ours(name: &str) -> bool {
    let is_whole = name.rsplit_once('.').is_some_and(|(id, what)| {
        let names = [What::DebugInfo, What::Executable].map(What::name);
        id.bytes().all(|it| it.is_ascii_hexdigit()) && names.contains(&what)
    });
    is_whole || name.starts_with(INCOMING)
}

fn is(file: &File, wanted: &Wanted) -> bool {
    build_id(file).is_some_and(|id| hex(&id) == *wanted.build_id)
}
