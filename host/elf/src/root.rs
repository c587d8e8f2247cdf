//! Opens files named by other processes.

use std::fs::{File, Metadata};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;

use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, openat, openat2};

const PATH_ONLY: OFlags = OFlags::PATH.union(OFlags::CLOEXEC);

/// The root directory of a process, or any other directory that contains untrusted paths.
pub struct Root(OwnedFd);

/// A regular file that is not open for reading yet: opening a pipe or a device may wait or have side effects.
pub(crate) struct Regular {
    pub file: File,
    pub metadata: Metadata,
}

/// Opens a file below a root: see [`Root::open_regular`].
pub fn open_regular(root: &Path, path: &Path) -> io::Result<File> {
    Root::open(root)?.open_regular(path)
}

impl Root {
    pub fn open(path: &Path) -> io::Result<Self> {
        Ok(Self(openat(CWD, path, PATH_ONLY, Mode::empty())?))
    }

    /// Resolves symlinks, which a container may point anywhere, within the root. Refuses other than regular files.
    pub fn open_regular(&self, path: &Path) -> io::Result<File> {
        self.find_regular(path)?.open()
    }

    pub(crate) fn find_regular(&self, path: &Path) -> io::Result<Regular> {
        let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
        Regular::check(openat2(&self.0, path, PATH_ONLY, Mode::empty(), resolve)?)
    }
}

impl Regular {
    /// Follows symlinks anywhere.
    pub fn find(path: &Path) -> io::Result<Self> {
        Self::check(openat(CWD, path, PATH_ONLY, Mode::empty())?)
    }

    fn check(found: OwnedFd) -> io::Result<Self> {
        let file = File::from(found);
        let metadata = file.metadata()?;
        if !metadata.is_file() {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "not a regular file",
            ));
        }
        Ok(Self { file, metadata })
    }

    pub fn open(&self) -> io::Result<File> {
        File::open(format!("/proc/self/fd/{}", self.file.as_raw_fd()))
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::Read;
    use std::os::unix::fs::symlink;

    use rustix::fs::mkfifoat;

    use super::*;

    #[test]
    fn opens_regular_files_below_the_root_only() {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path().join("root");
        fs::create_dir_all(root.join("etc")).unwrap();
        fs::write(directory.path().join("secret"), "outside").unwrap();
        fs::write(root.join("etc/name"), "inside").unwrap();
        symlink("/etc/name", root.join("absolute")).unwrap();
        symlink("../../secret", root.join("upwards")).unwrap();
        symlink("/proc/self/exe", root.join("magic")).unwrap();
        // Opening it would wait for a writer.
        mkfifoat(CWD, root.join("pipe"), Mode::RUSR).unwrap();

        for path in ["etc/name", "/etc/name", "absolute"] {
            let mut text = String::new();
            let mut file = open_regular(&root, Path::new(path)).unwrap();
            file.read_to_string(&mut text).unwrap();
            assert_eq!(text, "inside", "{path}");
        }
        for path in ["upwards", "../secret", "magic", "pipe", "etc", "missing"] {
            open_regular(&root, Path::new(path)).unwrap_err();
        }
    }
}
