//! The ways to the file that a process has mapped.

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, ErrorKind};
use std::path::{Path, PathBuf};

use profcol_ebpf_common::record;

/// Opens the file and tells its path as the process sees it.
///
/// The kernel's link leads to the very file, whatever its path says by now, but takes
/// CAP_CHECKPOINT_RESTORE. Without it there is still the path, and whoever opens it asks whether it
/// is the same file.
pub fn open(announced: &record::File) -> io::Result<(String, File)> {
    let link = link_to(announced);
    match File::open(&link) {
        Ok(file) => {
            let path = fs::read_link(&link).unwrap_or_default();
            Ok((display_path(&path), file))
        }
        Err(error) if error.kind() == ErrorKind::PermissionDenied => {
            let pid = announced.pid;
            let maps = BufReader::new(File::open(format!("/proc/{pid}/maps"))?);
            let path = path_at(announced.start, maps).ok_or(error)?;
            let file =
                File::open(format!("/proc/{pid}/root{path}")).or_else(|_| File::open(&path))?;
            Ok((path, file))
        }
        Err(error) => Err(error),
    }
}

fn link_to(announced: &record::File) -> PathBuf {
    let record::File {
        pid, start, end, ..
    } = *announced;
    if start == 0 && end == 0 {
        return format!("/proc/{pid}/exe").into();
    }
    format!("/proc/{pid}/map_files/{start:x}-{end:x}").into()
}

fn display_path(path: &Path) -> String {
    let path = path.to_string_lossy();
    path.strip_suffix(" (deleted)").unwrap_or(&path).to_owned()
}

/// The path of the mapping that begins there.
fn path_at(start: u64, maps: impl BufRead) -> Option<String> {
    let begin = format!("{start:x}-");
    let line = maps
        .lines()
        .map_while(Result::ok)
        .find(|line| line.starts_with(&begin))?;
    let path = line.get(line.find('/')?..)?;
    (!path.ends_with(" (deleted)")).then(|| path.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAPS: &str = "\
55d0a000-55d0b000 r--p 00000000 fe:00 1331 /usr/bin/my program
55d0b000-55d0c000 r-xp 00001000 fe:00 1331 /usr/bin/my program
7f00a000-7f00b000 r-xp 00000000 fe:00 7 /tmp/x (deleted)
7f00b000-7f00c000 rw-p 00000000 00:00 0 [heap]
";

    #[test]
    fn finds_the_path_of_a_mapping() {
        let check = |start, expected: Option<&str>| {
            let found = path_at(start, MAPS.as_bytes());
            assert_eq!(found.as_deref(), expected, "{start:#x}");
        };
        check(0x55d0_b000, Some("/usr/bin/my program"));
        check(0x7f00_a000, None);
        check(0x7f00_b000, None);
        check(0x55d0_b, None);
    }
}
