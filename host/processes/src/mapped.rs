//! The executable files mapped by a process.

use std::collections::HashSet;
use std::io;
use std::path::Path;

use profcol_elf::{Mapping, mappings};

/// The first mapping of code of each file, ordered by address; of the process with this directory in `/proc`. An error if the process is
/// gone or belongs to another user.
pub fn mapped_code(process: &Path) -> io::Result<Vec<Mapping>> {
    first_of_files(mappings(process)?)
}

fn first_of_files(mappings: impl Iterator<Item = io::Result<Mapping>>) -> io::Result<Vec<Mapping>> {
    let mut seen = HashSet::new();
    let mut files = Vec::new();
    for mapping in mappings {
        let mapping = mapping?;
        let has_path = mapping.is_code() && mapping.path.is_absolute();
        if has_path && mapping.file.is_some_and(|file| seen.insert(file)) {
            files.push(mapping);
        }
    }
    Ok(files)
}

#[cfg(test)]
mod tests {
    use profcol_elf::Mappings;

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
        let files = first_of_files(Mappings::new(maps.as_bytes())).unwrap();
        let found: Vec<_> = files.iter().map(|it| (it.name(), it.range.start)).collect();
        assert_eq!(found, [(Some("a b"), 0x2000), (Some("gone.so"), 0x4000)]);
    }

    #[test]
    fn opens_mapped_files() {
        let own = Path::new("/proc/self");
        let files = mapped_code(own).unwrap();
        let executable = std::env::current_exe().unwrap();
        let file = files.iter().find(|it| it.path == executable);
        file.unwrap().open(own).unwrap();
        mapped_code(Path::new("/proc/4294967295")).unwrap_err();
    }
}
