//! The executable files mapped by a process.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use profcol_elf::open_regular;

/// Size limit of the list of mappings: enough for forty thousand.
const MAX_BYTES: u64 = 4 << 20;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MappedFile {
    /// In the kernel's notation.
    pub device: String,
    pub inode: u64,
    /// In the mount namespace of the process.
    pub path: String,
    /// The first executable mapping, in the kernel's notation.
    range: String,
}

/// Each file once, ordered by address. An error if the process is gone or belongs to another user.
pub fn mapped_code(proc: &Path, pid: u32) -> io::Result<Vec<MappedFile>> {
    let mut text = Vec::new();
    mappings(proc, pid)?.read_to_end(&mut text)?;
    Ok(parse(&String::from_utf8_lossy(&text)))
}

/// The list of all mappings, in the kernel's text.
pub(crate) fn mappings(proc: &Path, pid: u32) -> io::Result<impl Read> {
    let file = File::open(proc.join(pid.to_string()).join("maps"))?;
    Ok(file.take(MAX_BYTES))
}

impl MappedFile {
    /// Also opens files that were deleted, replaced or are in another mount namespace, as far as permissions allow.
    pub fn open(&self, proc: &Path, pid: u32) -> io::Result<File> {
        let process = proc.join(pid.to_string());
        let by_range = File::open(process.join("map_files").join(&self.range));
        by_range.or_else(|_| open_regular(&process.join("root"), Path::new(&self.path)))
    }

    pub fn name(&self) -> &str {
        self.path.rsplit('/').next().unwrap_or_default()
    }
}

fn parse(maps: &str) -> Vec<MappedFile> {
    let mut files: Vec<MappedFile> = Vec::new();
    for line in maps.lines() {
        let Some(file) = file_of(line) else {
            continue;
        };
        let is_same = |it: &MappedFile| it.inode == file.inode && it.device == file.device;
        if !files.iter().any(is_same) {
            files.push(file);
        }
    }
    files
}

/// `55d0c0000000-55d0c0021000 r-xp 00002000 08:01 1234   /usr/bin/a b`
fn file_of(line: &str) -> Option<MappedFile> {
    let mut fields = line.splitn(6, ' ');
    let range = fields.next()?;
    let permissions = fields.next()?;
    let (_, device, inode) = (fields.next()?, fields.next()?, fields.next()?.parse().ok()?);
    let path = fields.next()?.trim_start();
    let path = path.strip_suffix(" (deleted)").unwrap_or(path);
    let is_file = inode != 0 && path.starts_with('/');
    (permissions.contains('x') && is_file).then(|| MappedFile {
        device: device.to_owned(),
        inode,
        path: path.to_owned(),
        range: range.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_each_executable_file_once() {
        let maps = "\
            1000-2000 r--p 00000000 08:01 7 /usr/bin/a b\n\
            2000-3000 r-xp 00001000 08:01 7                          /usr/bin/a b\n\
            3000-4000 r-xp 00002000 08:01 7                          /usr/bin/a b\n\
            4000-5000 r-xp 00000000 08:01 8                          /lib/gone.so (deleted)\n\
            5000-6000 rwxp 00000000 00:00 0 \n\
            6000-7000 r-xp 00000000 00:00 0                          [vdso]\n\
            nonsense\n";
        let files = parse(maps);
        let paths: Vec<_> = files
            .iter()
            .map(|it| (it.path.as_str(), it.inode))
            .collect();
        assert_eq!(paths, [("/usr/bin/a b", 7), ("/lib/gone.so", 8)]);
        assert_eq!(files[0].name(), "a b");
        assert_eq!(files[0].range, "2000-3000");
    }

    #[test]
    fn opens_mapped_files() {
        let proc = Path::new("/proc");
        let own = std::process::id();
        let files = mapped_code(proc, own).unwrap();
        let executable = std::env::current_exe().unwrap();
        let file = files.iter().find(|it| Path::new(&it.path) == executable);
        file.unwrap().open(proc, own).unwrap();
        mapped_code(proc, u32::MAX).unwrap_err();
    }
}
