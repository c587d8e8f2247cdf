//! Reads executables in another process, which may fail without harm.
//!
//! ```text
//! agent ──── Start, two sockets ───► supervisor ──── starts, kills ───► reader
//!   │ ◄───── started, ended ──────────────┘                                │
//!   └──── files, requests ──────────────────────────────────────────────► │
//!         answers, requests for companion files ◄────────────────────────────┘
//! ```
//!
//! * [`Reader`]: resolves addresses in executables, in a process of its own or in this one.
//! * [`DebuginfoReader`]: extracts the debuginfo of an executable, likewise.
//! * [`Readers`]: starts readers, by a supervisor: the sandbox lets the agent start no programs.
//! * [`supervise`], [`serve`]: the supervisor and the reader.
//!
//! The reader opens no files: the agent does, by its rules, and passes descriptors. A file may exploit a bug in the reader, so
//! the agent checks each answer, and a companion file is passed only if it is one.

mod channel;
mod debuginfo;
mod extract;
mod failure;
mod messages;
mod process;
mod readers;
mod request;
mod service;
mod supervisor;
mod symbols;
mod tables;
#[cfg(any(test, feature = "testkit"))]
pub mod testkit;
#[cfg(test)]
mod tests;

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use profcol_symbols::{CompanionFiles, Style, Unresolved};

pub use self::channel::{Channel, Message, Received, SendMode};
pub use self::debuginfo::DebuginfoReader;
pub use self::extract::{ExtractOptions, ExtractionFailure, FindDebugFile, Planned};
pub use self::failure::{Exit, Interrupted, ReaderFailure};
pub use self::messages::{Invalid, ReaderKind, bounded};
pub use self::process::{Next, NotReady, ReaderProcess};
pub use self::readers::{LOW_NICE, LOW_TABLE_NICE, Limits, Readers, StartError};
pub use self::service::{notify_ready, serve};
pub use self::supervisor::{ReaderCommand, supervise};
use self::symbols::SymbolReader;
pub use self::tables::cpu_time;
use self::tables::{Tables, UntilStop};

/// Where code is in an executable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileAddress {
    Virtual(u64),
    FileOffset(u64),
}

/// A function at an address, possibly inlined.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResolvedFrame {
    /// The demangled name.
    pub name: Arc<str>,
    pub system_name: Arc<str>,
    pub file: Arc<str>,
    pub line: u32,
    pub column: u32,
    pub start_line: u32,
}

/// The answers to the first addresses of a request: at least one.
#[derive(Debug, PartialEq, Eq)]
pub struct Resolved {
    pub answers: Vec<Result<Vec<ResolvedFrame>, Unresolved>>,
    /// CPU time that it took in another process.
    pub cpu: Duration,
}

/// An executable with symbols.
#[derive(Debug)]
pub struct Opened {
    /// Estimated memory use.
    pub weight: usize,
    /// Why a part of the file is not used.
    pub damage: Option<String>,
}

/// Why an executable is not read.
#[derive(Debug, PartialEq, Eq)]
pub enum ReadError {
    NoNames,
    Refused(String),
    /// The reader failed while it read this executable. The next call starts another.
    Reader(ReaderFailure),
    /// Nothing more is read.
    Stopped,
}

/// An open executable, and where its companion files are.
#[derive(Clone)]
pub struct OpenExecutable {
    pub file: Arc<File>,
    pub companions: Rc<dyn CompanionFiles>,
    /// Maximum size of what is decompressed of each file.
    pub max_unpacked: u64,
}

/// Whether to go on; asked often.
pub type KeepGoing = Rc<dyn Fn() -> bool>;

/// Reads executables, each under a key of the caller.
pub struct Reader {
    executables: HashMap<u64, OpenExecutable>,
    /// Executables whose tables are in the current reader process.
    open: HashSet<u64>,
    backend: Backend,
    keep_going: KeepGoing,
}

/// Where executables are read.
enum Backend {
    Local(Tables),
    Process(Box<SymbolReader>),
}

impl Reader {
    /// `readers` start a process for it, or it reads in this thread. `report` is called for each process that failed.
    pub fn new(
        readers: &Readers,
        limits: Limits,
        keep_going: KeepGoing,
        report: impl Fn(&ReaderFailure) + Send + 'static,
    ) -> Self {
        let backend = match readers.is_available() {
            true => Backend::Process(Box::new(SymbolReader::new(readers.clone(), limits, report))),
            false => Backend::Local(Tables::default()),
        };
        Self {
            executables: HashMap::new(),
            open: HashSet::new(),
            backend,
            keep_going,
        }
    }

    pub fn uses_process(&self) -> bool {
        matches!(self.backend, Backend::Process(_))
    }

    pub fn open(&mut self, key: u64, executable: OpenExecutable) -> Result<Opened, ReadError> {
        self.executables.insert(key, executable);
        let opened = self.reopen(key);
        if opened.is_err() {
            self.executables.remove(&key);
        }
        opened
    }

    /// Resolves addresses until the CPU time is used up; at least one.
    pub fn find(
        &mut self,
        key: u64,
        addresses: &[FileAddress],
        style: Option<Style>,
        budget: Duration,
    ) -> Result<Resolved, ReadError> {
        self.ensure_running()?;
        if !self.open.contains(&key) {
            self.reopen(key)?;
        }
        let executable = self.executables.get(&key).ok_or(ReadError::NoNames)?;
        let found = match &mut self.backend {
            Backend::Local(tables) => tables
                .find(key, addresses, style, budget)
                .ok_or(ReadError::NoNames),
            Backend::Process(process) => {
                process.find(key, executable, addresses, style, budget, &self.keep_going)
            }
        };
        self.checked(found)
    }

    /// Frees memory of an executable down to the limit, as far as that goes; returns what is left.
    pub fn shrink(&mut self, key: u64, limit: usize) -> Result<usize, ReadError> {
        let Some(executable) = self.executables.get(&key) else {
            return Ok(0);
        };
        if !self.open.contains(&key) {
            return Ok(0);
        }
        let left = match &mut self.backend {
            Backend::Local(tables) => Ok(tables.shrink(key, limit)),
            Backend::Process(process) => process.shrink(key, executable, limit, &self.keep_going),
        };
        self.checked(left)
    }

    pub fn forget(&mut self, key: u64) {
        self.executables.remove(&key);
        if !self.open.remove(&key) {
            return;
        }
        match &mut self.backend {
            Backend::Local(tables) => tables.forget(key),
            Backend::Process(process) => process.forget(key),
        }
    }

    /// Reads an executable in the present process.
    fn reopen(&mut self, key: u64) -> Result<Opened, ReadError> {
        self.ensure_running()?;
        let executable = self.executables.get(&key).ok_or(ReadError::NoNames)?;
        let opened = match &mut self.backend {
            Backend::Local(tables) => {
                let keep_going = Rc::clone(&self.keep_going);
                let companions = UntilStop {
                    source: Rc::clone(&executable.companions),
                    keep_going: Rc::clone(&keep_going),
                };
                let source = UntilStop {
                    source: Arc::clone(&executable.file),
                    keep_going,
                };
                let opened = tables.open(
                    key,
                    Rc::new(source),
                    Rc::new(companions),
                    executable.max_unpacked,
                );
                // After the stop, reads of files fail.
                match (self.keep_going)() {
                    true => opened,
                    false => Err(ReadError::Stopped),
                }
            }
            Backend::Process(process) => process.open(key, executable, &self.keep_going),
        };
        let opened = self.checked(opened)?;
        self.open.insert(key);
        Ok(opened)
    }

    /// Starts a process if that is needed. If none can be started, this thread goes on.
    fn ensure_running(&mut self) -> Result<(), ReadError> {
        let Backend::Process(process) = &mut self.backend else {
            return Ok(());
        };
        match process.ensure_running(&self.keep_going) {
            Ok(false) => Ok(()),
            Ok(true) => {
                self.open.clear();
                Ok(())
            }
            Err(NotReady::Stopped) => Err(ReadError::Stopped),
            Err(NotReady::Unavailable(why)) => {
                tracing::warn!(
                    %why,
                    "Failed to start a reader process; reading executables in this one, where a bug does more harm."
                );
                self.open.clear();
                self.backend = Backend::Local(Tables::default());
                Ok(())
            }
        }
    }

    /// A process that failed takes all tables with it.
    fn checked<T>(&mut self, answer: Result<T, ReadError>) -> Result<T, ReadError> {
        if let Err(ReadError::Reader(_)) = &answer {
            self.open.clear();
        }
        answer
    }
}
