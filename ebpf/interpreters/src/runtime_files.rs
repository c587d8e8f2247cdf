//! Runtimes that are found through the processes that map their files.

use std::collections::HashMap;
use std::fs::File;
use std::path::PathBuf;

use profcol_ebpf_unwind::ElfCode;
use profcol_elf::{FileKey, Mapping, mappings};

/// Maximum number of tracked files with a runtime; a host has a few.
const MAX_FILES: usize = 64;

/// The result of looking for a runtime in a process.
#[derive(Clone, Debug)]
pub enum Attached<R> {
    /// There is none, or an unsupported one.
    None,
    /// It is starting.
    NotYet,
    Runtime(Box<R>),
}

impl<R> Attached<R> {
    pub fn map<T>(self, change: impl FnOnce(Box<R>) -> T) -> Attached<T> {
        match self {
            Self::None => Attached::None,
            Self::NotYet => Attached::NotYet,
            Self::Runtime(runtime) => Attached::Runtime(Box::new(change(runtime))),
        }
    }
}

/// What is known of the files of a runtime.
#[derive(Debug)]
pub struct RuntimeFiles<T> {
    /// None if it is not supported.
    known: HashMap<FileKey, Option<T>>,
    limit: usize,
}

impl<T> Default for RuntimeFiles<T> {
    fn default() -> Self {
        Self::with_limit(MAX_FILES)
    }
}

impl<T> RuntimeFiles<T> {
    /// For up to this many files.
    pub fn with_limit(limit: usize) -> Self {
        Self {
            known: HashMap::new(),
            limit,
        }
    }

    /// Inodes of deleted files are used again.
    pub fn forget(&mut self) {
        self.known.clear();
    }
}

impl<T: Clone> RuntimeFiles<T> {
    /// What is known of a mapped file; detected in the file if it is a new one. None if it cannot be opened: the process may have exited.
    pub fn get_or_detect<E>(
        &mut self,
        pid: u32,
        mapping: &Mapping,
        detect: impl FnOnce(&ElfCode, &File) -> Result<Option<T>, E>,
    ) -> Result<Option<T>, E> {
        let known = mapping.file.and_then(|file| self.known.get(&file));
        if let Some(known) = known {
            return Ok(known.clone());
        }
        let file = match mapping.open(&process_directory(pid)) {
            Ok(file) => file,
            Err(error) => {
                let path = mapping.path.display();
                tracing::debug!(pid, %path, %error, "failed to open a mapped file");
                return Ok(None);
            }
        };
        let found = match ElfCode::read(&file) {
            Ok(code) => detect(&code, &file)?,
            Err(_) => None,
        };
        self.keep(mapping, found.clone());
        Ok(found)
    }

    pub fn keep(&mut self, mapping: &Mapping, known: Option<T>) {
        let Some(file) = mapping.file else {
            return;
        };
        if self.known.len() >= self.limit && !self.known.contains_key(&file) {
            self.known.clear();
        }
        self.known.insert(file, known);
    }
}

/// The mappings of a process, as far as they can be read.
pub fn mappings_of(pid: u32) -> impl Iterator<Item = Mapping> {
    let mappings = mappings(&process_directory(pid)).into_iter().flatten();
    mappings.map_while(Result::ok)
}

/// The mappings of code of a process.
pub fn code_of(pid: u32) -> impl Iterator<Item = Mapping> {
    mappings_of(pid).filter(Mapping::is_code)
}

fn process_directory(pid: u32) -> PathBuf {
    format!("/proc/{pid}").into()
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a panic fails the test")]
mod tests {
    use std::convert::Infallible;
    use std::fs;
    use std::io::{Read, Write};
    use std::os::unix::fs::MetadataExt;
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn a_replaced_file_is_not_taken_for_the_mapped_one() {
        let directory = tempfile::tempdir().unwrap();
        let program = directory.path().join("program");
        fs::copy("/bin/cat", &program).unwrap();
        let inode = program.metadata().unwrap().ino();
        let mut child = Command::new(&program)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        // Its code is mapped once it answers, not yet when `spawn` returns.
        child.stdin.as_mut().unwrap().write_all(b"x").unwrap();
        child.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
        let mapping = code_of(child.id()).find(|mapping| mapping.path == program);
        let mapping = mapping.unwrap();
        let not_followed = Mapping {
            range: 0..0,
            ..mapping.clone()
        };
        let read = |files: &mut RuntimeFiles<u64>, mapping: &Mapping| {
            let Ok(found) = files.get_or_detect(child.id(), mapping, |_, file| {
                Ok::<_, Infallible>(file.metadata().ok().map(|file| file.ino()))
            });
            found
        };
        let mut known = RuntimeFiles::default();
        assert_eq!(read(&mut known, &not_followed), Some(inode));

        let replacement = directory.path().join("replacement");
        fs::copy("/bin/cat", &replacement).unwrap();
        fs::rename(replacement, &program).unwrap();
        let mut files = RuntimeFiles::default();
        assert_eq!(read(&mut files, &not_followed), None);
        assert!(files.known.is_empty());
        // The mapping leads to the old file if permissions allow.
        assert!([None, Some(inode)].contains(&read(&mut files, &mapping)));
        assert_eq!(read(&mut known, &not_followed), Some(inode));

        // It ends with its input.
        drop(child.stdin.take());
        child.wait().unwrap();
    }

    #[test]
    fn the_number_of_known_files_is_bounded() {
        let mapping = code_of(std::process::id()).next().unwrap();
        let mut files = RuntimeFiles::default();
        for inode in 0..3 * MAX_FILES as u64 {
            let file = Some(FileKey { device: 1, inode });
            files.keep(
                &Mapping {
                    file,
                    ..mapping.clone()
                },
                Some(inode),
            );
            assert!(files.known.len() <= MAX_FILES);
        }
    }
}
