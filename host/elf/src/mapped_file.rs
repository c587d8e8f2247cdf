//! Opens the files of mappings.

use std::fs::{self, File};
use std::io::{self, Read};
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::file_key::FileKey;
use crate::mapping::{Mapping, numbers};
use crate::root::{Regular, Root};

/// Size limit of a list of mounts: enough for twenty thousand.
const MAX_MOUNTS_BYTES: u64 = 4 << 20;

/// The link to the file that is mapped at a range, in the process with this directory in `/proc`. Its name has no leading zeros,
/// unlike the range in a list of mappings.
pub fn map_files_link(process: &Path, range: &Range<u64>) -> PathBuf {
    process.join(format!("map_files/{:x}-{:x}", range.start, range.end))
}

impl Mapping {
    /// Opens its file if that is a regular one: also deleted or replaced ones, and those of other mount namespaces, as far as
    /// permissions allow. `process` is the directory of the process in `/proc`.
    pub fn open(&self, process: &Path) -> io::Result<File> {
        let Some(key) = self.file else {
            return Err(other("the mapping has no file"));
        };
        let by_range = Regular::find(&map_files_link(process, &self.range));
        let refused = match by_range {
            Ok(found) if key.may_be_mapped(&found.metadata) => return found.open(),
            Ok(_) => other("another file is mapped there now"),
            Err(error) => error,
        };
        let root = Root::open(&process.join("root"));
        let error = match root.and_then(|root| root.find_regular(&self.path)) {
            Ok(found) if key.is_of(&found, process) => return found.open(),
            Ok(_) => other("another file is there now"),
            Err(error) => error,
        };
        let error = format!("by its mapping: {refused}; by its path: {error}");
        Err(io::Error::new(refused.kind(), error))
    }
}

impl FileKey {
    /// Whether it is the one that was found below the root of a process. The mounts of btrfs and overlayfs have the devices of lists of
    /// mappings.
    fn is_of(&self, found: &Regular, process: &Path) -> bool {
        found.metadata.ino() == self.inode
            && (found.metadata.dev() == self.device
                || mounted_device(found, process).is_ok_and(|device| device == Some(self.device)))
    }
}

/// The device of the mount through which a file was found.
fn mounted_device(found: &Regular, process: &Path) -> io::Result<Option<u64>> {
    let description = fs::read(format!("/proc/self/fdinfo/{}", found.file.as_raw_fd()))?;
    let mut lines = description.split(|&byte| byte == b'\n');
    let Some(mount) = lines.find_map(|line| line.strip_prefix(b"mnt_id:")) else {
        return Ok(None);
    };
    let mut mounts = Vec::new();
    File::open(process.join("mountinfo"))?
        .take(MAX_MOUNTS_BYTES)
        .read_to_end(&mut mounts)?;
    let mut lines = mounts.split(|&byte| byte == b'\n');
    Ok(lines.find_map(|line| device_of_mount(line, mount.trim_ascii())))
}

/// `36 35 98:0 /source /target rw - ext4 /dev/root rw`
fn device_of_mount(line: &[u8], id: &[u8]) -> Option<u64> {
    let mut fields = line.split(|&byte| byte == b' ');
    if fields.next()? != id {
        return None;
    }
    let (major, minor) = numbers(fields.nth(1)?, ':', 10)?;
    Some(FileKey::new(major, minor, 0)?.device)
}

fn other(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::NotFound, what)
}

#[cfg(test)]
mod tests {
    use std::io::BufRead;
    use std::os::unix::fs::{FileExt, symlink};
    use std::process::{Child, Command, Stdio};

    use profcol_test_skip::skip;
    use rustix::fs::{CWD, Mode, makedev, mkfifoat};
    use tempfile::TempDir;

    use super::*;
    use crate::mappings;

    /// The mapping of this test's own code.
    fn own_mapping() -> Mapping {
        let own = own_mapping as *const () as u64;
        let mut found = mappings(Path::new("/proc/self")).unwrap();
        let found = found.find_map(|it| it.ok().filter(|it| it.range.contains(&own)));
        found.expect("it is mapped")
    }

    /// The directory of a process with this root, whose mappings cannot be followed.
    fn process_with_root(root: &Path) -> TempDir {
        let process = tempfile::tempdir().unwrap();
        symlink(root, process.path().join("root")).unwrap();
        symlink("/proc/self/mountinfo", process.path().join("mountinfo")).unwrap();
        process
    }

    #[test]
    fn a_path_leads_to_the_mapped_file_only() {
        let process = process_with_root(Path::new("/"));
        let process = process.path();
        let mapping = own_mapping();
        mapping.open(process).unwrap();

        let key = mapping.file.unwrap();
        for other in [
            FileKey {
                inode: key.inode + 1,
                ..key
            },
            FileKey {
                device: key.device + 1,
                ..key
            },
        ] {
            let other = Mapping {
                file: Some(other),
                ..mapping.clone()
            };
            let refused = other.open(process).unwrap_err().to_string();
            assert!(refused.contains("another file is there"), "{refused}");
        }
        let anonymous = Mapping {
            file: None,
            ..mapping
        };
        anonymous.open(process).unwrap_err();
    }

    #[test]
    fn a_path_leads_to_nothing_outside_the_root_and_to_no_pipe() {
        let root = tempfile::tempdir().unwrap();
        let process = process_with_root(root.path());
        let mapping = own_mapping();
        symlink(&mapping.path, root.path().join("link")).unwrap();
        mkfifoat(CWD, root.path().join("pipe"), Mode::RUSR).unwrap();
        for (path, expected) in [
            ("/link", "by its path: No such file"),
            ("/pipe", "by its path: not a regular file"),
        ] {
            let mapping = Mapping {
                path: path.into(),
                ..mapping.clone()
            };
            let error = mapping.open(process.path()).unwrap_err().to_string();
            assert!(error.contains(expected), "{path}: {error}");
        }
    }

    #[test]
    fn mounts_have_devices() {
        let line = b"36 35 98:11 /source /target rw - ext4 /dev/root rw";
        let device = |id: &[u8]| device_of_mount(line, id);
        assert_eq!(device(b"36"), Some(makedev(98, 11)));
        assert_eq!(device(b"35"), None);
        assert_eq!(device_of_mount(b"36 35 98", b"36"), None);
    }

    /// A program at this address, once it has deleted itself.
    fn deleted_program(directory: &Path, options: &[&str]) -> Option<Child> {
        const SOURCE: &str = "#include <stdio.h>\n#include <unistd.h>\n\
            int main(int count, char **words) { unlink(words[0]); puts(\"deleted\"); fflush(stdout); return getchar(); }";
        let source = directory.join("source.c");
        fs::write(&source, SOURCE).unwrap();
        let program = directory.join("program");
        let mut compiler = Command::new("gcc");
        compiler.args(options).arg(source).arg("-o").arg(&program);
        let Ok(compiled) = compiler.status() else {
            skip("gcc is not installed");
            return None;
        };
        assert!(compiled.success());
        let mut child = Command::new(program)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut output = io::BufReader::new(child.stdout.take().unwrap());
        output.read_line(&mut String::new()).unwrap();
        Some(child)
    }

    #[test]
    fn opens_deleted_programs_at_any_address() {
        for options in [["-no-pie"], ["-pie"]] {
            let directory = tempfile::tempdir().unwrap();
            let Some(mut child) = deleted_program(directory.path(), &options) else {
                return;
            };
            let program = directory.path().join("program");
            assert!(!program.exists());
            let process = PathBuf::from(format!("/proc/{}", child.id()));
            let found: Vec<Mapping> = mappings(&process)
                .unwrap()
                .map(Result::unwrap)
                .filter(|it| it.path == program)
                .collect();
            let opened = found.iter().map(|it| it.open(&process));
            let opened: io::Result<Vec<File>> = opened.collect();
            child.kill().unwrap();
            child.wait().unwrap();
            // Eight digits with leading zeros, or twelve.
            let is_low = found[0].range.start < 1 << 28;
            assert_eq!(is_low, options == ["-no-pie"]);
            match opened {
                Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                    skip("no permission to open the files of mappings");
                }
                opened => {
                    for file in opened.unwrap() {
                        let mut start = [0; 4];
                        file.read_exact_at(&mut start, 0).unwrap();
                        assert_eq!(&start, b"\x7fELF");
                    }
                }
            }
        }
    }
}
