//! Reads processes from /proc: those that started before tracking, and those with missed events.

use std::path::{Path, PathBuf};
use std::{fs, io};

use profcol_elf::{Mapping, mappings};

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
    let process = PathBuf::from(format!("/proc/{pid}"));
    let code = code_in(mappings(&process).ok()?)?;
    if !code.is_empty() {
        return Some(code);
    }
    // The first thread may have exited.
    let threads = fs::read_dir(process.join("task")).ok()?;
    threads
        .flatten()
        .filter_map(|thread| code_in(mappings(&thread.path()).ok()?))
        .find(|code| !code.is_empty())
}

pub fn is_there(pid: u32) -> bool {
    PathBuf::from(format!("/proc/{pid}")).exists()
}

fn code_in(mappings: impl Iterator<Item = io::Result<Mapping>>) -> Option<Vec<Mapped>> {
    let code = mappings.filter_map(|mapping| mapping.map(mapped_code).transpose());
    code.collect::<io::Result<_>>().ok()
}

fn mapped_code(mapping: Mapping) -> Option<Mapped> {
    if !mapping.is_code() || mapping.path == Path::new("[vsyscall]") {
        return None;
    }
    let origin = mapping.file.map(FileOrigin::of);
    Some(Mapped {
        start: mapping.range.start,
        end: mapping.range.end,
        offset: mapping.offset,
        origin,
        path: if origin.is_some() {
            mapping.path
        } else {
            PathBuf::new()
        },
    })
}

#[cfg(test)]
mod tests {
    use profcol_elf::Mappings;

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
        let code = code_in(Mappings::new(maps.as_bytes())).unwrap();
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
