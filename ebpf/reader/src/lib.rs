//! Builds unwind tables and finds interpreters in another process, which may fail without harm.
//!
//! * [`CodeReader`]: reads files, in a process of its own or in this one.
//! * [`serve`]: that process.
//!
//! Any user who can start a process controls the files. One may exploit a bug of the process that reads it, so each
//! table and each interpreter is checked before use.

mod messages;
mod process;
mod service;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fs::File;
use std::sync::Arc;
use std::time::Instant;

use profcol_ebpf_common::context::ContextLayout;
use profcol_ebpf_interpreters::{DetectedInterpreter, FileRuntime};
use profcol_ebpf_unwind::{ElfCode, Index, Table, UnwindTableError};
use profcol_elf::Source;
use profcol_reader::{Limits, NotReady, ReaderFailure, Readers};

use self::process::TableProcess;
pub use self::service::serve;

/// Memory of the process besides the program itself. The largest table is [`messages::MAX_TABLE_BYTES`].
const MAX_MEMORY: usize = 256 << 20;
/// How often a file is read by another process after one failed.
const ATTEMPTS: u32 = 2;

/// A file with code, or memory of the kernel (the vDSO).
#[derive(Clone)]
pub struct CodeFile {
    pub source: Arc<dyn Source + Send + Sync>,
    /// Not set for memory, which is read in this process.
    pub file: Option<Arc<File>>,
}

/// What was read of a file.
#[derive(Debug)]
pub struct Code {
    pub features: FileFeatures,
    pub table: Result<Built, ReadError>,
}

/// What a file has besides its unwind information, or why that is not supported.
#[derive(Debug)]
pub struct FileFeatures {
    /// Where threads of the executable have contexts.
    pub contexts: Result<Option<ContextLayout>, String>,
    pub interpreter: Option<DetectedInterpreter>,
    /// That of the interpreter, or a runtime that has none in its file or is not supported.
    pub runtime: Option<FileRuntime>,
}

/// What was built for a file.
#[derive(Debug)]
pub enum Built {
    Whole(Table),
    /// Only the index is open; [`CodeReader::pages`] builds the pages.
    Lazy,
}

/// The table of a file, or the index of its unwind information.
enum OpenTable {
    Whole(Table),
    Index(Index),
}

/// Why there is no table.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    #[error(transparent)]
    Table(#[from] UnwindTableError),
    /// The table could not be built in the other process.
    #[error("{0}")]
    Refused(String),
    #[error("the process that read it failed: {0}")]
    Reader(ReaderFailure),
    #[error("profcol is stopping")]
    Stopped,
}

/// Builds the tables of files, each under a key of the caller.
pub struct CodeReader {
    /// `None` if none can be started.
    process: Option<TableProcess>,
    /// The indices that are held in this process.
    indices: HashMap<u64, Index>,
    last_use: Instant,
    keep_going: Box<dyn Fn() -> bool + Send>,
}

impl CodeReader {
    /// `readers` start a process for it, or it reads in this thread. `report` is called for each process that failed.
    pub fn new(
        readers: &Readers,
        low_priority: bool,
        keep_going: impl Fn() -> bool + Send + 'static,
        report: impl Fn(&ReaderFailure) + Send + 'static,
    ) -> Self {
        let limits = Limits::new(MAX_MEMORY, low_priority);
        let process = readers
            .is_available()
            .then(|| TableProcess::new(readers.clone(), limits, report));
        Self {
            process,
            indices: HashMap::new(),
            last_use: Instant::now(),
            keep_going: Box::new(keep_going),
        }
    }

    /// Reads a file and builds its table. If `may_be_lazy` and the file has an index of its unwind information, only that is
    /// opened.
    pub fn read(&mut self, key: u64, code: &CodeFile, elf: &ElfCode, may_be_lazy: bool) -> Code {
        if let Some(file) = &code.file {
            let mut features = FileFeatures::nothing();
            let table = self.in_process(|process, keep_going| {
                process.read(key, file, may_be_lazy, &mut features, keep_going)
            });
            if let Some(table) = table {
                return Code { features, table };
            }
        }
        let features = FileFeatures::detect(elf, &*code.source);
        let table = match OpenTable::of(elf, &*code.source, may_be_lazy) {
            Ok(OpenTable::Whole(table)) => Ok(Built::Whole(table)),
            Ok(OpenTable::Index(index)) => {
                self.indices.insert(key, index);
                Ok(Built::Lazy)
            }
            Err(refused) => Err(refused.into()),
        };
        Code { features, table }
    }

    /// Builds some pages of a file whose index is open.
    pub fn pages(
        &mut self,
        key: u64,
        code: &CodeFile,
        begin: u64,
        count: u64,
    ) -> Result<Table, ReadError> {
        if let Some(file) = &code.file
            && let Some(built) = self.in_process(|process, keep_going| {
                process.pages(key, file, begin, count, keep_going)
            })
        {
            return built;
        }
        let index = match self.indices.entry(key) {
            Entry::Occupied(open) => open.into_mut(),
            // It was opened in a process that can no longer be started.
            Entry::Vacant(entry) => {
                let elf = ElfCode::read(&*code.source)?;
                entry.insert(Index::open(&elf, &*code.source)?)
            }
        };
        Ok(index.pages(&*code.source, begin, count)?)
    }

    pub fn forget(&mut self, key: u64) {
        self.indices.remove(&key);
        if let Some(process) = &mut self.process {
            process.forget(key);
        }
    }

    /// Since when the process has had nothing to read, if it runs.
    pub fn idle_since(&self) -> Option<Instant> {
        let process = self.process.as_ref()?;
        process.is_running().then_some(self.last_use)
    }

    /// Ends the process until it is needed again.
    pub fn rest(&mut self) {
        if let Some(process) = &mut self.process {
            process.stop();
        }
    }

    /// `None` if this thread has to do it.
    fn in_process<T>(
        &mut self,
        mut work: impl FnMut(&mut TableProcess, &dyn Fn() -> bool) -> Result<T, ReadError>,
    ) -> Option<Result<T, ReadError>> {
        let process = self.process.as_mut()?;
        let mut answer = Err(ReadError::Stopped);
        for _ in 0..ATTEMPTS {
            match process.ensure_running(&*self.keep_going) {
                Ok(()) => {}
                Err(NotReady::Stopped) => return Some(Err(ReadError::Stopped)),
                Err(NotReady::Unavailable(why)) => {
                    tracing::warn!(
                        %why,
                        "Failed to start a reader process; building unwind tables in this one, where a bug does more harm."
                    );
                    self.process = None;
                    return None;
                }
            }
            answer = work(process, &*self.keep_going);
            if !matches!(answer, Err(ReadError::Reader(_))) {
                break;
            }
        }
        self.last_use = Instant::now();
        Some(answer)
    }
}

impl OpenTable {
    fn of(
        elf: &ElfCode,
        source: &(impl Source + ?Sized),
        may_be_lazy: bool,
    ) -> Result<Self, UnwindTableError> {
        // Without a search table (Go has none) it cannot be built by pages.
        if may_be_lazy && let Ok(index) = Index::open(elf, source) {
            return Ok(Self::Index(index));
        }
        Table::build(elf, source).map(Self::Whole)
    }
}

impl FileFeatures {
    fn nothing() -> Self {
        Self {
            contexts: Ok(None),
            interpreter: None,
            runtime: None,
        }
    }

    fn detect(elf: &ElfCode, source: &(impl Source + ?Sized)) -> Self {
        let contexts = profcol_ebpf_interpreters::context::detect(elf, source);
        let detected = profcol_ebpf_interpreters::detect(elf, source);
        let runtime =
            FileRuntime::of_detected(&detected).or_else(|| FileRuntime::of_processes(elf, source));
        Self {
            contexts: contexts.map_err(|unsupported| unsupported.to_string()),
            interpreter: detected.ok().flatten(),
            runtime,
        }
    }
}
