//! The thread that reads executables.
//!
//! It holds the most recently used tables. Each executable always has the same worker, so that
//! workers do not wait for each other.

use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use profcol_component::{CodeAddress, ExecutableAddress, SymbolFrame};
use profcol_debuginfo::ExtractError;
use profcol_symbols::{Companions, Style, Symbols, Unresolved, demangle};

use super::backlog::{Backlog, Job};
use super::companions::CompanionFiles;
use super::config::{Demangle, Priority};
use super::debuginfod::FileRequest;
use super::files::Files;
use super::names::{Names, SymbolResult};
use super::pace::{Pace, Stopping, UntilStop, cpu_time};
use super::telemetry::{Reason, Telemetry};
use super::unresolved::Module;

/// Lower than other programs, but high enough to make progress on a busy host.
const LOW_NICE: i32 = 10;
/// How long a missing file, or one without symbols, is not tried again.
const MISSING: Duration = Duration::from_secs(60);
/// Maximum number of such files remembered.
const MAX_MISSING: usize = 4096;
/// CPU time for one executable before the backlog picks the next one.
const TURN: Duration = Duration::from_millis(500);

pub(super) struct Worker {
    /// Its index.
    pub number: usize,
    pub backlog: Arc<Backlog>,
    pub names: Arc<Names>,
    pub files: Arc<Files>,
    pub telemetry: Arc<Telemetry>,
    pub stopping: Arc<Stopping>,
    pub demangle: Demangle,
    pub priority: Priority,
    pub max_cpu: f64,
    /// Memory limit for tables.
    pub max_memory: usize,
}

/// The tables of one executable.
struct Held {
    symbols: Symbols,
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

/// The state of the thread, not shared.
struct Library {
    worker: Worker,
    pace: Pace,
    held: HashMap<Arc<str>, Held>,
    missing: HashMap<Arc<str>, Missing>,
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
        let mut library = Library {
            pace: Pace::new(self.max_cpu),
            held: HashMap::new(),
            missing: HashMap::new(),
            clock: 0,
            reported: 0.0,
            worker: self,
        };
        while let Some(job) = library.worker.backlog.take(library.worker.number) {
            let before = cpu_time();
            let build_id = Arc::clone(&job.module.build_id);
            library.work(job, before);
            library.shrink(&build_id);
            let spent = cpu_time().saturating_sub(before);
            library.worker.backlog.spend(&build_id, spent);
        }
    }
}

impl Library {
    /// Places not resolved when the turn is over stay in the backlog.
    fn work(&mut self, job: Job, began: Duration) {
        let Job { module, places } = job;
        for place in places {
            let build_id = Arc::clone(&module.build_id);
            let code = ExecutableAddress { build_id, place };
            // It may have been requested again just before it was answered.
            if self.worker.names.get(&code).is_none() {
                let answer = self.find(&module, place);
                if self.worker.stopping.is_set() {
                    return;
                }
                let is_final = !self.is_downloading(&code.build_id)
                    && !matches!(
                        answer,
                        Err(Reason::NoFile | Reason::NoNames | Reason::Refused)
                    );
                self.worker.names.insert(code.clone(), answer, is_final);
            }
            self.worker.backlog.answered(&code);
            self.pace.keep(&self.worker.stopping);
            if cpu_time().saturating_sub(began) > TURN {
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

    fn find(&mut self, module: &Module, place: CodeAddress) -> SymbolResult {
        let style = match self.worker.demangle {
            Demangle::None => None,
            Demangle::Short => Some(Style::Short),
            Demangle::Full => Some(Style::Full),
        };
        let held = self.open(module)?;
        let address = match place {
            CodeAddress::Virtual(address) => address,
            CodeAddress::FileOffset(offset) => {
                held.symbols.address_of(offset).ok_or(Reason::NotFound)?
            }
        };
        let frames = held.symbols.find(address).map_err(|why| match why {
            Unresolved::NotFound => Reason::NotFound,
            Unresolved::TooMuchWork => Reason::TooMuchWork,
        })?;
        let frame = |found: profcol_symbols::Frame| {
            let system_name = found.name;
            let name = style.and_then(|style| demangle(&system_name, style));
            SymbolFrame {
                name: name.map_or_else(|| Arc::clone(&system_name), Arc::from),
                system_name,
                file: found.file,
                start_line: found.start_line,
                line: found.line,
                column: found.column,
            }
        };
        Ok(frames.into_iter().map(frame).collect())
    }

    fn open(&mut self, module: &Module) -> Result<&mut Held, Reason> {
        self.clock += 1;
        let build_id = &module.build_id;
        let held = self.held.get(build_id);
        if held.is_some_and(|held| !self.is_awaited(held.download.as_ref())) {
            self.held.remove(build_id);
        }
        if !self.held.contains_key(build_id) {
            if let Some(missing) = self.missing.get(build_id)
                && missing.since.elapsed() < MISSING
                && self.is_awaited(missing.download.as_ref())
            {
                return Err(missing.reason);
            }
            let (read, download) = self.read(module);
            match read {
                Ok(symbols) => {
                    let weight = symbols.weight();
                    let held = Held {
                        symbols,
                        weight,
                        last_use: 0,
                        download,
                    };
                    self.held.insert(Arc::clone(build_id), held);
                }
                Err(reason) => {
                    if self.missing.len() >= MAX_MISSING {
                        self.missing.clear();
                    }
                    let missing = Missing {
                        since: Instant::now(),
                        reason,
                        download,
                    };
                    self.missing.insert(Arc::clone(build_id), missing);
                    return Err(reason);
                }
            }
        }
        let held = self.held.get_mut(build_id).ok_or(Reason::NoFile)?;
        held.last_use = self.clock;
        Ok(held)
    }

    /// Returns the symbols, and the file being downloaded that may have more.
    fn read(&self, module: &Module) -> (Result<Symbols, Reason>, Option<FileRequest>) {
        let executable = self.worker.files.open(module);
        let Some(file) = executable.found else {
            return (Err(Reason::NoFile), executable.download);
        };
        let path = module.path.display();
        let companion_files = Rc::new(CompanionFiles::new(
            Arc::clone(&self.worker.files),
            module,
            Arc::clone(&self.worker.stopping),
        ));
        let companions: Rc<dyn Companions> = companion_files.clone();
        let max_memory = self.worker.max_memory as u64;
        let file = UntilStop {
            source: file,
            stopping: Arc::clone(&self.worker.stopping),
        };
        let read = match Symbols::read(Rc::new(file), companions, max_memory) {
            Ok(symbols) => {
                if let Some(damage) = symbols.damage() {
                    tracing::info!(%path, %damage, "Failed to read some symbols of an executable.");
                }
                Ok(symbols)
            }
            Err(ExtractError::NoNames) => Err(Reason::NoNames),
            // After the stop, reads of files fail.
            Err(_) if self.worker.stopping.is_set() => Err(Reason::Refused),
            Err(refused) => {
                tracing::info!(%path, %refused, "Failed to read the symbols of an executable.");
                Err(Reason::Refused)
            }
        };
        (read, companion_files.download())
    }

    /// Evicts the least recently used tables, and the present executable's if they alone exceed the limit.
    fn shrink(&mut self, present: &Arc<str>) {
        let max_memory = self.worker.max_memory;
        if let Some(held) = self.held.get_mut(present) {
            held.symbols.shrink(max_memory);
            held.weight = held.symbols.weight();
        }
        let mut total: usize = self.held.values().map(|held| held.weight).sum();
        while total > max_memory {
            let oldest = self.held.iter().min_by_key(|(_, held)| held.last_use);
            let Some(oldest) = oldest.map(|(build_id, _)| Arc::clone(build_id)) else {
                break;
            };
            if let Some(held) = self.held.remove(&oldest) {
                total -= held.weight;
                self.worker.telemetry.evicted_files.inc();
            }
        }
        self.worker
            .telemetry
            .memory
            .add(total as f64 - self.reported);
        self.reported = total as f64;
    }
}
