//! Reads processes from /proc: those that started before tracking, and those with missed events.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use super::records::{FileOrigin, Mapped};

/// The PIDs of all processes.
pub fn processes() -> Vec<u32> {
    let Ok(entries) = fs::read_dir("/proc") else {
        return Vec::new();
    };
    entries
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .collect()
}

/// The code that a process has mapped. The files have no generation. None if the process does not exist or
/// its mappings cannot be read.
pub fn code(pid: u32) -> Option<Vec<Mapped>> {
    let code = parse(&fs::read(format!("/proc/{pid}/maps")).ok()?);
    if !code.is_empty() {
        return Some(code);
    }
    // The first thread may have exited.
    let threads = fs::read_dir(format!("/proc/{pid}/task")).ok()?;
    let of_threads = threads
        .flatten()
        .filter_map(|thread| fs::read(thread.path().join("maps")).ok())
        .map(|maps| parse(&maps));
    of_threads.into_iter().find(|code| !code.is_empty())
}

pub fn is_there(pid: u32) -> bool {
    PathBuf::from(format!("/proc/{pid}")).exists()
}

fn parse(maps: &[u8]) -> Vec<Mapped> {
    maps.split(|&byte| byte == b'\n').filter_map(line).collect()
}

/// `start-end permissions offset major:minor inode path`.
fn line(line: &[u8]) -> Option<Mapped> {
    let mut rest = line;
    let mut next = || {
        let begin = rest.iter().position(|&byte| byte != b' ')?;
        let (_, word) = rest.split_at_checked(begin)?;
        let end = word
            .iter()
            .position(|&byte| byte == b' ')
            .unwrap_or(word.len());
        let (word, behind) = word.split_at_checked(end)?;
        rest = behind;
        std::str::from_utf8(word).ok()
    };
    let hex = |text| u64::from_str_radix(text, 16).ok();
    let (start, end) = next()?.split_once('-')?;
    let permissions = next()?;
    let offset = hex(next()?)?;
    let (major, minor) = next()?.split_once(':')?;
    let device = FileOrigin::device(hex(major)? as u32, hex(minor)? as u32);
    let inode: u64 = next()?.parse().ok()?;
    let path = rest.trim_ascii_start();
    if permissions.as_bytes().get(2) != Some(&b'x') || path == b"[vsyscall]" {
        return None;
    }
    let has_file = inode != 0;
    Some(Mapped {
        start: hex(start)?,
        end: hex(end)?,
        offset,
        origin: has_file.then_some(FileOrigin {
            inode,
            device,
            generation: 0,
        }),
        path: if has_file {
            OsStr::from_bytes(path).into()
        } else {
            PathBuf::new()
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_the_code_in_a_list_of_mappings() {
        let maps = "\
55d0c0a00000-55d0c0a02000 r--p 00000000 fe:00 42    /usr/bin/with space
55d0c0a02000-55d0c0a06000 r-xp 00002000 fe:00 42    /usr/bin/with space
7f00a0000000-7f00a0001000 rwxp 00000000 00:00 0
7ffd1d5fe000-7ffd1d600000 r-xp 00000000 00:00 0     [vdso]
ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0     [vsyscall]
nonsense
";
        let code = parse(maps.as_bytes());
        let origin = FileOrigin {
            inode: 42,
            device: 0xfe << 20,
            generation: 0,
        };
        assert_eq!(
            code,
            [
                Mapped {
                    start: 0x55d0_c0a0_2000,
                    end: 0x55d0_c0a0_6000,
                    offset: 0x2000,
                    origin: Some(origin),
                    path: "/usr/bin/with space".into(),
                },
                Mapped {
                    start: 0x7f00_a000_0000,
                    end: 0x7f00_a000_1000,
                    ..Mapped::default()
                },
                Mapped {
                    start: 0x7ffd_1d5f_e000,
                    end: 0x7ffd_1d60_0000,
                    ..Mapped::default()
                },
            ]
        );
    }

    #[test]
    fn finds_the_code_of_this_process() {
        let code = code(std::process::id()).expect("its own mappings are readable");
        let own = super::code as *const () as u64;
        let holds = |mapped: &Mapped| mapped.start <= own && own < mapped.end;
        let found = code.iter().find(|mapped| holds(mapped));
        assert!(found.is_some_and(|mapped| mapped.origin.is_some()));
    }
}
