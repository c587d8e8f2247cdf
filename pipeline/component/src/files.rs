//! Creates files and directories.
//!
//! Profiles and logs reveal what runs on a host, so they are readable by the user and its group only. The umask applies
//! on top; existing files keep their permissions.

use std::fs::{DirBuilder, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

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

/// The directory in which a file with this path is created; of several, if `path` has a `*`.
pub fn directory_of(path: &str) -> PathBuf {
    let fixed = path.split('*').next().unwrap_or_default();
    match fixed.rfind('/') {
        Some(end) => PathBuf::from(&fixed[..=end]),
        None => PathBuf::from("."),
    }
}

/// The file paths among outputs: all but `stdout` and `stderr`.
pub fn of_outputs(outputs: &[String]) -> impl Iterator<Item = &str> {
    let outputs = outputs.iter().map(String::as_str);
    outputs.filter(|output| !matches!(*output, "stdout" | "stderr"))
}

/// The directory in which a listener on `endpoint` creates its Unix socket.
pub fn socket_directory(endpoint: &str) -> Option<PathBuf> {
    let path = endpoint.strip_prefix("unix://").unwrap_or(endpoint);
    is_unix_socket(endpoint).then(|| directory_of(path))
}

/// Whether `endpoint` is the path of a Unix socket, not `host:port`.
pub(crate) fn is_unix_socket(endpoint: &str) -> bool {
    let port = endpoint.rsplit_once(':').map(|(_, port)| port);
    port.is_none_or(|port| port.parse::<u16>().is_err())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn others_cannot_read_created_files() {
        let root = tempfile::tempdir().unwrap();
        let directory = root.path().join("a/b");
        create_directories(&directory).unwrap();
        create_directories(&directory).unwrap();
        let file = directory.join("c");
        write(&file, "1").unwrap();
        write(&file, "2").unwrap();
        assert_eq!(fs::read(&file).unwrap(), b"2");
        for (path, mode) in [
            (root.path().join("a"), DIRECTORY_MODE),
            (directory, DIRECTORY_MODE),
            (file, FILE_MODE),
        ] {
            let found = fs::metadata(&path).unwrap().permissions().mode();
            // The umask may clear more bits.
            assert_eq!(found & 0o7777 & !mode, 0, "{}: {found:o}", path.display());
            assert_eq!(found & 0o700, mode & 0o700, "{}: {found:o}", path.display());
        }
    }

    #[test]
    fn knows_the_directory_of_a_path() {
        for (path, expected) in [
            ("/var/lib/a.json", "/var/lib/"),
            ("/var/lib/*/a.json", "/var/lib/"),
            ("/var/lib/host-*.json", "/var/lib/"),
            ("a.json", "."),
        ] {
            assert_eq!(directory_of(path), Path::new(expected), "{path}");
        }
        for (endpoint, expected) in [
            ("localhost:4317", None),
            ("[::1]:4317", None),
            ("unix:///run/profcol/otlp.sock", Some("/run/profcol/")),
            ("/run/profcol/otlp.sock", Some("/run/profcol/")),
        ] {
            assert_eq!(
                socket_directory(endpoint).as_deref(),
                expected.map(Path::new),
                "{endpoint}"
            );
        }
    }
}
