//! The files and folders that profcol makes.
//!
//! Profiles and logs tell what runs on a host and how: their user and its group may read them, others may not. The umask
//! takes away from that; what is there already keeps its permissions.

use std::fs::{DirBuilder, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;

pub const FILE_MODE: u32 = 0o640;
pub const DIRECTORY_MODE: u32 = 0o750;

/// Options under which a new file is ours to read.
pub fn options() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.mode(FILE_MODE);
    options
}

/// Makes the folder and those above it, where they are missing.
pub fn create_directories(path: &Path) -> io::Result<()> {
    let mut builder = DirBuilder::new();
    builder.recursive(true).mode(DIRECTORY_MODE).create(path)
}

/// Makes or empties the file, and writes `content` to it.
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
    fn others_may_not_read_what_is_made() {
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
            // As the umask permits.
            assert_eq!(found & 0o7777 & !mode, 0, "{}: {found:o}", path.display());
            assert_eq!(found & 0o700, mode & 0o700, "{}: {found:o}", path.display());
        }
    }
}
