//! What the log asks of a file system, so that tests can put one in its place that fails.

use std::fs::{self, File};
use std::io::{self, IoSlice, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use profcol_component::files;

/// One folder of files.
pub trait Disk: Send + Sync {
    /// The files in it.
    fn names(&self) -> io::Result<Vec<String>>;
    /// A new, empty file; fails where there is one of this name.
    fn create(&self, name: &str) -> io::Result<Arc<dyn DiskFile>>;
    fn open(&self, name: &str) -> io::Result<Arc<dyn DiskFile>>;
    fn remove(&self, name: &str) -> io::Result<()>;
    /// Makes durable which files there are.
    fn sync(&self) -> io::Result<()>;
}

/// A file that grows at its end.
pub trait DiskFile: Send + Sync {
    /// Writes all parts at the end, or fails after any part of them.
    fn append(&self, parts: &[&[u8]]) -> io::Result<()>;
    /// Fills `into`, or fails.
    fn read_at(&self, at: u64, into: &mut [u8]) -> io::Result<()>;
    fn size(&self) -> io::Result<u64>;
    fn truncate(&self, size: u64) -> io::Result<()>;
    /// Makes durable what is in it.
    fn sync(&self) -> io::Result<()>;
}

/// A folder of this machine.
pub struct Folder(PathBuf);

impl Folder {
    /// Makes the folder where it is missing.
    pub fn create(path: &Path) -> io::Result<Self> {
        files::create_directories(path)?;
        Ok(Self(path.to_owned()))
    }

    /// A folder that is there.
    pub fn existing(path: &Path) -> Self {
        Self(path.to_owned())
    }
}

impl Disk for Folder {
    fn names(&self) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(&self.0)? {
            // A name that is not UTF-8 is none of ours.
            names.extend(entry?.file_name().into_string());
        }
        Ok(names)
    }

    fn create(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        let mut options = files::options();
        let options = options.read(true).append(true).create_new(true);
        Ok(Arc::new(options.open(self.0.join(name))?))
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        let path = self.0.join(name);
        let writable = files::options().read(true).append(true).open(&path);
        let opened = match writable {
            // Enough for whoever only looks.
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => File::open(&path),
            opened => opened,
        };
        Ok(Arc::new(opened?))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        fs::remove_file(self.0.join(name))
    }

    fn sync(&self) -> io::Result<()> {
        File::open(&self.0)?.sync_all()
    }
}

impl DiskFile for File {
    fn append(&self, parts: &[&[u8]]) -> io::Result<()> {
        let mut slices: Vec<IoSlice<'_>> = parts.iter().map(|part| IoSlice::new(part)).collect();
        let mut left = &mut slices[..];
        IoSlice::advance_slices(&mut left, 0);
        while !left.is_empty() {
            match (&mut &*self).write_vectored(left) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(written) => IoSlice::advance_slices(&mut left, written),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn read_at(&self, at: u64, into: &mut [u8]) -> io::Result<()> {
        self.read_exact_at(into, at)
    }

    fn size(&self) -> io::Result<u64> {
        Ok(self.metadata()?.len())
    }

    fn truncate(&self, size: u64) -> io::Result<()> {
        self.set_len(size)
    }

    fn sync(&self) -> io::Result<()> {
        self.sync_data()
    }
}
