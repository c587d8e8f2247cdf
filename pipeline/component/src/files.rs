//! Creates files and directories.
//!
//! Profiles and logs reveal what runs on a host, so they are readable by the user and its group only. The umask applies
//! on top; existing files keep their permissions.

use std::fs::{DirBuilder, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;

pub const FILE_MODE: u32 = 0o640;
pub const DIRECTORY_MODE: u32 = 0o750;

/// Open options that create files with restricted permissions.
pub fn options() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.mode(FILE_MODE);
    options
}

/// Creates the directory and missing parents.
pub fn create_directories(path: &Path) -> io::Result<()> {
    let mut builder = DirBuilder::new();
    builder.recursive(true).mode(DIRECTORY_MODE).create(path)
}

/// Creates or truncates the file, and writes `content` to it.
pub fn write(path: &Path, content: impl AsRef<[u8]>) -> io::Result<()> {
    let mut options = options();
    let opened = options.write(true).create(true).truncate(true).open(path);
    opened?.write_all(content.as_ref())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn others_cannot_read_created_files() {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("a/b");
        create_directories(&folder).unwrap();
        create_directories(&folder).unwrap();
        let file = folder.join("c");
        write(&file, "1").unwrap();
        write(&file, "2").unwrap();
        assert_eq!(fs::read(&file).unwrap(), b"2");
        for (path, mode) in [
            (root.path().join("a"), DIRECTORY_MODE),
            (folder, DIRECTORY_MODE),
            (file, FILE_MODE),
        ] {
            let found = fs::metadata(&path).unwrap().permissions().mode();
            // The umask may clear more bits.
            assert_eq!(found & 0o7777 & !mode, 0, "{}: {found:o}", path.display());
            assert_eq!(found & 0o700, mode & 0o700, "{}: {found:o}", path.display());
        }
    }
}
