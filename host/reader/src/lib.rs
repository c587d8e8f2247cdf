//! Reads executables in another process, which may fail without harm.
//!
//! ```text
//! agent ──── Start, two sockets ───► supervisor ──── starts, kills ───► reader
//!   │ ◄───── started, ended ──────────────┘                                │
//!   └──── files, questions ──────────────────────────────────────────────► │
//!         answers, wishes for companion files ◄────────────────────────────┘
//! ```
//!
//! * [`Reader`]: reads executables, in a process of its own or in this one.
//! * [`Readers`]: starts readers, by a supervisor: the sandbox lets the agent start no programs.
//! * [`supervise`], [`serve`]: the supervisor and the reader.
//!
//! The reader opens no files: the agent does, by its rules, and passes descriptors. A file may exploit a bug in the reader, so
//! the agent checks each answer, and a companion file is passed only if it is one.

mod apart;
mod channel;
mod messages;
mod readers;
mod service;
mod supervisor;
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

use self::apart::{Apart, NotReady};
pub use self::apart::{End, Failure};
pub use self::readers::{Limits, Readers, StartError};
pub use self::service::serve;
pub use self::supervisor::{ReaderCommand, supervise};
use self::tables::{Tables, UntilStop};

/// Where code is in an executable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    Virtual(u64),
    FileOffset(u64),
}

/// A function at a place, possibly inlined.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// The demangled name.
    pub name: Arc<str>,
    pub system_name: Arc<str>,
    pub file: Arc<str>,
    pub line: u32,
    pub column: u32,
    pub start_line: u32,
}

/// The answers to the first places of a request: at least one.
#[derive(Debug, PartialEq, Eq)]
pub struct Found {
    pub answers: Vec<Result<Vec<Frame>, Unresolved>>,
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
pub enum Failed {
    NoNames,
    Refused(String),
    /// The reader failed while it read this executable. The next call starts another.
    Reader(Failure),
    /// Nothing more is read.
    Stopped,
}

/// An open executable, and where its companion files are.
#[derive(Clone)]
pub struct Executable {
    pub file: Arc<File>,
    pub companions: Rc<dyn CompanionFiles>,
    /// Maximum size of what is decompressed of each file.
    pub max_unpacked: u64,
}

/// Whether to go on; asked often.
pub type GoesOn = Rc<dyn Fn() -> bool>;

/// Reads executables, each under a key of the caller.
pub struct Reader {
    executables: HashMap<u64, Executable>,
    /// Those whose tables are in the present process.
    open: HashSet<u64>,
    room: Room,
    goes_on: GoesOn,
}

/// Where executables are read.
enum Room {
    Here(Tables),
    Apart(Box<Apart>),
}

impl Reader {
    /// `readers` start a process for it, or it reads in this thread. `report` is told of each process that failed.
    pub fn new(
        readers: &Readers,
        limits: Limits,
        goes_on: GoesOn,
        report: impl Fn(&Failure) + 'static,
    ) -> Self {
        let room = match readers.is_available() {
            true => Room::Apart(Box::new(Apart::new(readers.clone(), limits, report))),
            false => Room::Here(Tables::default()),
        };
        Self {
            executables: HashMap::new(),
            open: HashSet::new(),
            room,
            goes_on,
        }
    }

    pub fn is_apart(&self) -> bool {
        matches!(self.room, Room::Apart(_))
    }

    pub fn open(&mut self, key: u64, executable: Executable) -> Result<Opened, Failed> {
        self.executables.insert(key, executable);
        let opened = self.reopen(key);
        if opened.is_err() {
            self.executables.remove(&key);
        }
        opened
    }

    /// Resolves places until the CPU time is used up; at least one.
    pub fn find(
        &mut self,
        key: u64,
        places: &[Place],
        style: Option<Style>,
        budget: Duration,
    ) -> Result<Found, Failed> {
        self.ready()?;
        if !self.open.contains(&key) {
            self.reopen(key)?;
        }
        let executable = self.executables.get(&key).ok_or(Failed::NoNames)?;
        let found = match &mut self.room {
            Room::Here(tables) => tables
                .find(key, places, style, budget)
                .ok_or(Failed::NoNames),
            Room::Apart(apart) => apart.find(key, executable, places, style, budget, &self.goes_on),
        };
        self.checked(found)
    }

    /// Frees memory of an executable down to the limit, as far as that goes; returns what is left.
    pub fn shrink(&mut self, key: u64, limit: usize) -> Result<usize, Failed> {
        let Some(executable) = self.executables.get(&key) else {
            return Ok(0);
        };
        if !self.open.contains(&key) {
            return Ok(0);
        }
        let left = match &mut self.room {
            Room::Here(tables) => Ok(tables.shrink(key, limit)),
            Room::Apart(apart) => apart.shrink(key, executable, limit, &self.goes_on),
        };
        self.checked(left)
    }

    pub fn forget(&mut self, key: u64) {
        self.executables.remove(&key);
        if !self.open.remove(&key) {
            return;
        }
        match &mut self.room {
            Room::Here(tables) => tables.forget(key),
            Room::Apart(apart) => apart.forget(key),
        }
    }

    /// Reads an executable in the present process.
    fn reopen(&mut self, key: u64) -> Result<Opened, Failed> {
        self.ready()?;
        let executable = self.executables.get(&key).ok_or(Failed::NoNames)?;
        let opened = match &mut self.room {
            Room::Here(tables) => {
                let goes_on = Rc::clone(&self.goes_on);
                let companions = UntilStop {
                    source: Rc::clone(&executable.companions),
                    goes_on: Rc::clone(&goes_on),
                };
                let source = UntilStop {
                    source: Arc::clone(&executable.file),
                    goes_on,
                };
                let opened = tables.open(
                    key,
                    Rc::new(source),
                    Rc::new(companions),
                    executable.max_unpacked,
                );
                // After the stop, reads of files fail.
                match (self.goes_on)() {
                    true => opened,
                    false => Err(Failed::Stopped),
                }
            }
            Room::Apart(apart) => apart.open(key, executable, &self.goes_on),
        };
        let opened = self.checked(opened)?;
        self.open.insert(key);
        Ok(opened)
    }

    /// Starts a process if that is needed. If none can be started, this thread goes on.
    fn ready(&mut self) -> Result<(), Failed> {
        let Room::Apart(apart) = &mut self.room else {
            return Ok(());
        };
        match apart.ready(&self.goes_on) {
            Ok(false) => Ok(()),
            Ok(true) => {
                self.open.clear();
                Ok(())
            }
            Err(NotReady::Stopped) => Err(Failed::Stopped),
            Err(NotReady::Unavailable(why)) => {
                tracing::warn!(
                    %why,
                    "No process can be started that reads executables. They are read in this one, where a bug would do more harm."
                );
                self.open.clear();
                self.room = Room::Here(Tables::default());
                Ok(())
            }
        }
    }

    /// A process that failed takes all tables with it.
    fn checked<T>(&mut self, answer: Result<T, Failed>) -> Result<T, Failed> {
        if let Err(Failed::Reader(_)) = &answer {
            self.open.clear();
        }
        answer
    }
}
