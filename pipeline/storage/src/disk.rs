//! The file system interface of the log, so that tests can simulate a failing one.

use std::fs::{self, File};
use std::io::{self, IoSlice, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use profcol_component::files;

/// A directory of files.
pub trait Disk: Send + Sync {
    /// The names of its files.
    fn names(&self) -> io::Result<Vec<String>>;
    /// Creates an empty file; fails if it exists.
    fn create(&self, name: &str) -> io::Result<Arc<dyn DiskFile>>;
    fn open(&self, name: &str) -> io::Result<Arc<dyn DiskFile>>;
    fn remove(&self, name: &str) -> io::Result<()>;
    /// Syncs the directory entries.
    fn sync(&self) -> io::Result<()>;
    /// How many threads may read at once while a log is opened.
    fn concurrent_readers(&self) -> usize {
        1
    }
}

/// An append-only file.
pub trait DiskFile: Send + Sync {
    /// Appends all parts; may fail after a partial write.
    fn append(&self, parts: &[&[u8]]) -> io::Result<()>;
    /// Fills `into` completely, or fails.
    fn read_at(&self, at: u64, into: &mut [u8]) -> io::Result<()>;
    fn size(&self) -> io::Result<u64>;
    fn truncate(&self, size: u64) -> io::Result<()>;
    /// Syncs the content.
    fn sync(&self) -> io::Result<()>;
}

/// A directory on disk.
pub struct Folder(PathBuf);

impl Folder {
    /// Creates the directory if missing.
    pub fn create(path: &Path) -> io::Result<Self> {
        files::create_directories(path)?;
        Ok(Self(path.to_owned()))
    }

    /// An existing directory.
    pub fn existing(path: &Path) -> Self {
        Self(path.to_owned())
    }
}

impl Disk for Folder {
    fn names(&self) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(&self.0)? {
            // Our names are UTF-8; ignore others.
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
            // Read-only access is enough for inspection.
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

    fn concurrent_readers(&self) -> usize {
        // Disks answer several small reads in the time of one.
        8
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_a_folder_grow_and_can_be_removed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a/b");
        let disk = Folder::create(&path).unwrap();
        assert!(disk.concurrent_readers() > 1);
        let file = disk.create("one").unwrap();
        let twice = disk.create("one").err().map(|error| error.kind());
        assert_eq!(twice, Some(io::ErrorKind::AlreadyExists));
        // More parts than the kernel takes at once, some of them empty.
        let parts: Vec<Vec<u8>> = (0..3000).map(|n| vec![n as u8; n % 7]).collect();
        let slices: Vec<&[u8]> = parts.iter().map(Vec::as_slice).collect();
        file.append(&slices).unwrap();
        file.append(&[]).unwrap();
        file.append(&[b"end"]).unwrap();
        let expected = [parts.concat(), b"end".to_vec()].concat();
        assert_eq!(file.size().unwrap(), expected.len() as u64);
        let mut read = vec![0; expected.len() - 5];
        file.read_at(5, &mut read).unwrap();
        assert_eq!(read, expected[5..]);
        let beyond = file.read_at(6, &mut read).unwrap_err();
        assert_eq!(beyond.kind(), io::ErrorKind::UnexpectedEof);

        file.truncate(10).unwrap();
        let again = disk.open("one").unwrap();
        again.append(&[b"more"]).unwrap();
        let mut read = [0; 14];
        file.read_at(0, &mut read).unwrap();
        assert_eq!(read[..], [&expected[..10], b"more"].concat());
        file.sync().unwrap();

        disk.create("two").unwrap();
        let mut names = Folder::existing(&path).names().unwrap();
        names.sort();
        assert_eq!(names, ["one", "two"]);
        disk.remove("two").unwrap();
        assert_eq!(disk.names().unwrap(), ["one"]);
        assert!(disk.remove("two").is_err());
        disk.sync().unwrap();
        assert!(Folder::existing(&path.join("missing")).sync().is_err());
    }
}
