//! The thread that has executables read, in another process if there is one for it.
//!
//! It keeps the most recently used tables. Each executable always has the same worker, so that
//! workers do not wait for each other.

use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use profcol_component::{CodeAddress, ExecutableAddress, SymbolFrame};
use profcol_reader::{
    FileAddress, LOW_NICE, Limits, OpenExecutable, ReadError, Reader, Readers, ResolvedFrame,
    cpu_time,
};
use profcol_symbols::{Style, Unresolved};

use super::backlog::{Backlog, Job};
use super::companions::ModuleFiles;
use super::config::{Demangle, Priority};
use super::debuginfod::FileRequest;
use super::files::Files;
use super::names::{Names, SymbolResult};
use super::pace::{Pace, SLICE, Stopping};
use super::telemetry::{Reason, Telemetry};
use super::unresolved::Module;

/// How long a missing file, or one without symbols, is not tried again.
const MISSING: Duration = Duration::from_secs(60);
/// Maximum number of such files remembered.
const MAX_MISSING: usize = 4096;
/// How often the reader may fail at an executable: somebody else may have killed it the first time.
const MAX_FAILURES: u32 = 2;
/// How long an executable at which it failed that often is not tried again.
const READER_FAILED: Duration = Duration::from_secs(600);
/// CPU time for one executable before the backlog picks the next one.
const TURN: Duration = Duration::from_millis(500);

pub(super) struct Worker {
    /// The index of this worker.
    pub number: usize,
    pub backlog: Arc<Backlog>,
    pub names: Arc<Names>,
    pub files: Arc<Files>,
    pub telemetry: Arc<Telemetry>,
    pub stopping: Arc<Stopping>,
    pub readers: Readers,
    pub demangle: Demangle,
    pub priority: Priority,
    pub max_cpu: f64,
    /// Memory limit for tables.
    pub max_memory: usize,
}

/// An executable whose tables the reader holds.
struct Held {
    /// The key by which the reader knows this executable.
    key: u64,
    weight: usize,
    last_use: u64,
    /// The file with its DWARF, while it is downloaded; until then answers are not final.
    download: Option<FileRequest>,
}

/// An executable without tables.
struct Missing {
    since: Instant,
    reason: Reason,
    /// The file that may have them, while it is downloaded.
    download: Option<FileRequest>,
}

/// The failures of the reader at one executable.
struct Failures {
    count: u32,
    last: Instant,
}

/// The state of the thread, not shared.
struct Library {
    worker: Worker,
    reader: Reader,
    pace: Pace,
    /// CPU time that the reader used in its process.
    reader_cpu: Duration,
    held: HashMap<Arc<str>, Held>,
    missing: HashMap<Arc<str>, Missing>,
    failures: HashMap<Arc<str>, Failures>,
    clock: u64,
    /// The last reported size of the tables.
    reported: f64,
}

impl Worker {
    /// Runs until the backlog is closed.
    pub fn run(self) {
        if self.priority == Priority::Low
            && let Err(error) = rustix::process::setpriority_process(None, LOW_NICE)
        {
            tracing::debug!(%error, "failed to lower the thread priority");
        }
        let limits = Limits::new(self.max_memory, self.priority == Priority::Low);
        let stopping = Arc::clone(&self.stopping);
        let telemetry = Arc::clone(&self.telemetry);
        let reader = Reader::new(
            &self.readers,
            limits,
            Rc::new(move || !stopping.is_set()),
            move |failure| telemetry.count_restart(failure),
        );
        let mut library = Library {
            reader,
            pace: Pace::new(self.max_cpu),
            reader_cpu: Duration::ZERO,
            held: HashMap::new(),
            missing: HashMap::new(),
            failures: HashMap::new(),
            clock: 0,
            reported: 0.0,
            worker: self,
        };
        while let Some(job) = library.worker.backlog.take(library.worker.number) {
            let before = library.spent();
            let build_id = Arc::clone(&job.module.build_id);
            library.work(job, before);
            library.shrink(&build_id);
            let spent = library.spent().saturating_sub(before);
            library.worker.backlog.spend(&build_id, spent);
        }
    }
}

impl Library {
    /// CPU time of this thread and of its reader.
    fn spent(&self) -> Duration {
        cpu_time() + self.reader_cpu
    }

    /// Addresses not resolved when the turn is over stay in the backlog.
    fn work(&mut self, job: Job, began: Duration) {
        let Job { module, addresses } = job;
        let code = |address| ExecutableAddress {
            build_id: Arc::clone(&module.build_id),
            address,
        };
        // They may have been requested again just before they were answered.
        let (known, unknown): (Vec<_>, Vec<_>) = addresses
            .into_iter()
            .partition(|&address| self.worker.names.get(&code(address)).is_some());
        for address in known {
            self.worker.backlog.answered(&code(address));
        }
        let mut rest = &unknown[..];
        while !rest.is_empty() {
            let answers = self.find(&module, rest);
            if self.worker.stopping.is_set() {
                return;
            }
            let (answered, unanswered) = rest.split_at(answers.len().min(rest.len()));
            for (&address, answer) in answered.iter().zip(answers) {
                let code = code(address);
                let is_final = !self.is_downloading(&code.build_id)
                    && !matches!(
                        answer,
                        Err(Reason::NoFile
                            | Reason::NoNames
                            | Reason::Refused
                            | Reason::ReaderFailed)
                    );
                self.worker.names.insert(code.clone(), answer, is_final);
                self.worker.backlog.answered(&code);
            }
            rest = unanswered;
            self.pace.keep(self.reader_cpu, &self.worker.stopping);
            if self.spent().saturating_sub(began) > TURN {
                return;
            }
        }
    }

    /// Whether the file is still being downloaded.
    fn is_awaited(&self, download: Option<&FileRequest>) -> bool {
        download.is_none_or(|download| self.worker.files.is_downloading(download))
    }

    fn is_downloading(&self, build_id: &str) -> bool {
        let held = self.held.get(build_id);
        held.is_some_and(|held| held.download.is_some())
    }

    /// The answers to the first of these addresses, or to all of them. None if the reader failed and the rest is to be tried
    /// again.
    fn find(&mut self, module: &Module, addresses: &[CodeAddress]) -> Vec<SymbolResult> {
        let all = |reason| vec![Err(reason); addresses.len()];
        let style = match self.worker.demangle {
            Demangle::None => None,
            Demangle::Short => Some(Style::Short),
            Demangle::Full => Some(Style::Full),
        };
        let key = match self.open(module) {
            Ok(held) => held.key,
            Err(ReadFailure::Reason(reason)) => return all(reason),
            Err(ReadFailure::TryAgain) => return Vec::new(),
        };
        let requested: Vec<FileAddress> = addresses.iter().map(address_in_file).collect();
        let found = match self.reader.find(key, &requested, style, SLICE) {
            Ok(found) => found,
            Err(failed) => {
                return match self.unread(module, failed) {
                    ReadFailure::Reason(reason) => {
                        self.forget(&module.build_id);
                        self.remember_missing(module, reason, None);
                        all(reason)
                    }
                    ReadFailure::TryAgain => Vec::new(),
                };
            }
        };
        self.reader_cpu += found.cpu;
        let answers = found.answers.into_iter();
        answers
            .map(|answer| match answer {
                Ok(frames) => Ok(frames.into_iter().map(frame).collect()),
                Err(Unresolved::NotFound) => Err(Reason::NotFound),
                Err(Unresolved::TooMuchWork) => Err(Reason::TooMuchWork),
            })
            .collect()
    }

    /// What it means that an executable was not read.
    fn unread(&mut self, module: &Module, failed: ReadError) -> ReadFailure {
        let path = module.path.display();
        match failed {
            ReadError::NoNames => ReadFailure::Reason(Reason::NoNames),
            ReadError::Stopped => ReadFailure::Reason(Reason::Refused),
            ReadError::Refused(refused) => {
                tracing::info!(%path, %refused, "Failed to read the symbols of an executable.");
                ReadFailure::Reason(Reason::Refused)
            }
            ReadError::Reader(failure) => match self.count_failure(module) {
                true => {
                    tracing::warn!(
                        %path, build_id = %module.build_id, %failure,
                        "Reader process failed twice on an executable; skipping it for ten minutes."
                    );
                    ReadFailure::Reason(Reason::ReaderFailed)
                }
                false => {
                    tracing::warn!(
                        %path, build_id = %module.build_id, %failure,
                        "Reader process failed; retrying in another one."
                    );
                    ReadFailure::TryAgain
                }
            },
        }
    }

    /// Whether the reader fails too often at this executable.
    fn count_failure(&mut self, module: &Module) -> bool {
        self.failures
            .retain(|_, it| it.last.elapsed() < READER_FAILED);
        if self.failures.len() >= MAX_MISSING {
            self.failures.clear();
        }
        let failures = self
            .failures
            .entry(Arc::clone(&module.build_id))
            .or_insert(Failures {
                count: 0,
                last: Instant::now(),
            });
        failures.count += 1;
        failures.last = Instant::now();
        failures.count >= MAX_FAILURES
    }

    fn forget(&mut self, build_id: &str) {
        if let Some(held) = self.held.remove(build_id) {
            self.reader.forget(held.key);
        }
    }

    fn remember_missing(&mut self, module: &Module, reason: Reason, download: Option<FileRequest>) {
        if self.missing.len() >= MAX_MISSING {
            self.missing.clear();
        }
        let missing = Missing {
            since: Instant::now(),
            reason,
            download,
        };
        self.missing.insert(Arc::clone(&module.build_id), missing);
    }

    fn open(&mut self, module: &Module) -> Result<&mut Held, ReadFailure> {
        self.clock += 1;
        let build_id = &module.build_id;
        let held = self.held.get(build_id);
        if held.is_some_and(|held| !self.is_awaited(held.download.as_ref())) {
            self.forget(build_id);
        }
        if !self.held.contains_key(build_id) {
            if let Some(missing) = self.missing.get(build_id)
                && missing.since.elapsed() < missing.retry_after()
                && self.is_awaited(missing.download.as_ref())
            {
                return Err(ReadFailure::Reason(missing.reason));
            }
            let key = self.clock;
            let (read, download) = self.read(key, module);
            match read {
                Ok(weight) => {
                    let held = Held {
                        key,
                        weight,
                        last_use: 0,
                        download,
                    };
                    self.held.insert(Arc::clone(build_id), held);
                }
                Err(ReadFailure::Reason(reason)) => {
                    self.remember_missing(module, reason, download);
                    return Err(ReadFailure::Reason(reason));
                }
                Err(ReadFailure::TryAgain) => return Err(ReadFailure::TryAgain),
            }
        }
        let held = self.held.get_mut(build_id);
        let held = held.ok_or(ReadFailure::Reason(Reason::NoFile))?;
        held.last_use = self.clock;
        Ok(held)
    }

    /// Returns the weight of the tables, and the file being downloaded that may have more.
    fn read(
        &mut self,
        key: u64,
        module: &Module,
    ) -> (Result<usize, ReadFailure>, Option<FileRequest>) {
        let executable = self.worker.files.open(module);
        let Some(file) = executable.found else {
            let reason = ReadFailure::Reason(Reason::NoFile);
            return (Err(reason), executable.download);
        };
        let companions = Rc::new(ModuleFiles::new(Arc::clone(&self.worker.files), module));
        let executable = OpenExecutable {
            file,
            companions: Rc::<ModuleFiles>::clone(&companions),
            max_unpacked: self.worker.max_memory as u64,
        };
        let read = match self.reader.open(key, executable) {
            Ok(opened) => {
                if let Some(damage) = opened.damage {
                    let path = module.path.display();
                    tracing::info!(%path, %damage, "Failed to read some symbols of an executable.");
                }
                Ok(opened.weight)
            }
            Err(failed) => Err(self.unread(module, failed)),
        };
        (read, companions.download())
    }

    /// Evicts the least recently used tables, and the present executable's if they alone exceed the limit.
    fn shrink(&mut self, present: &Arc<str>) {
        let max_memory = self.worker.max_memory;
        if let Some(held) = self.held.get_mut(present)
            // If the reader failed, it is counted, and the next question opens the executable again.
            && let Ok(left) = self.reader.shrink(held.key, max_memory)
        {
            held.weight = left;
        }
        let mut total: usize = self.held.values().map(|held| held.weight).sum();
        while total > max_memory {
            let oldest = self.held.iter().min_by_key(|(_, held)| held.last_use);
            let Some(oldest) = oldest.map(|(build_id, _)| Arc::clone(build_id)) else {
                break;
            };
            total -= self.held.get(&oldest).map_or(0, |held| held.weight);
            self.forget(&oldest);
            self.worker.telemetry.evicted_files.inc();
        }
        self.worker
            .telemetry
            .memory
            .add(total as f64 - self.reported);
        self.reported = total as f64;
    }
}

/// Why there is no answer.
enum ReadFailure {
    Reason(Reason),
    /// The reader failed, perhaps not because of this executable.
    TryAgain,
}

impl Missing {
    fn retry_after(&self) -> Duration {
        match self.reason {
            Reason::ReaderFailed => READER_FAILED,
            _ => MISSING,
        }
    }
}

fn address_in_file(address: &CodeAddress) -> FileAddress {
    match *address {
        CodeAddress::Virtual(address) => FileAddress::Virtual(address),
        CodeAddress::FileOffset(offset) => FileAddress::FileOffset(offset),
    }
}

fn frame(frame: ResolvedFrame) -> SymbolFrame {
    SymbolFrame {
        name: frame.name,
        system_name: frame.system_name,
        file: frame.file,
        start_line: frame.start_line,
        line: frame.line,
        column: frame.column,
    }
}
