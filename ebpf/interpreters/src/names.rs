//! Names of interpreted functions, read from processes soon after they are sampled.
//!
//! A thread of its own reads them, so that slow process memory delays only other names. Names stay cached until
//! the memory is needed for others: samples identify functions by address and a generation, which changes when
//! another function takes that address.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::time::{Duration, Instant};
use std::{io, thread};

use parking_lot::{Condvar, Mutex};
use profcol_ebpf_common::interpreter::beam::BeamProcess;
use profcol_ebpf_common::interpreter::dotnet::DotNetProcess;
use profcol_ebpf_common::interpreter::hotspot::JavaProcess;
use profcol_ebpf_common::interpreter::runtime;

use crate::beam::{BeamFiles, BeamRuntime};
use crate::detected_interpreter::DetectedInterpreter;
use crate::dotnet::{DotNetFiles, DotNetRuntime};
use crate::error::FunctionError;
use crate::functions::ProcessCache;
use crate::hotspot::{JavaFiles, JavaRuntime};
pub use crate::interpreted_function::Role;
use crate::interpreted_function::{Function, InterpretedFunction};
use crate::memory::ProcessMemory;
use crate::runtime_files::Attached;
use crate::sampled_function::SampledFunction;

/// Maximum number of queued functions; dropped ones are queued again by a later sample.
const MAX_WAITING: usize = 4096;
/// Maximum number of processes with open memory files.
const MAX_OPEN: usize = 256;
/// Each time this many processes were opened, those that have exited are closed.
const CLOSE_EVERY: u64 = 16;
/// Maximum number of cached functions: enough for a hundred processes of a large framework.
const MAX_FUNCTIONS: usize = 1 << 18;
/// Maximum number of tracked processes with generated code.
const MAX_PROBES: usize = 8192;

/// Delay before a failed read is retried.
const RETRY_DELAY: Duration = Duration::from_millis(100);
/// After so many attempts to find a runtime the delay doubles with each: a process may keep it unreadable.
const QUICK_ATTEMPTS: u32 = 16;
const MAX_RETRY_DELAY: Duration = Duration::from_secs(60);
/// Delay before the next search for more memory with code.
const PROBE_DELAY: Duration = Duration::from_secs(1);

/// A function of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FunctionKey<K> {
    pub process: K,
    /// The file number of its interpreter.
    pub file: u32,
    pub function: SampledFunction,
}

/// Outcomes of requested functions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NameCounts {
    pub read: u64,
    /// The process or the function was gone.
    pub failed: u64,
    /// Dropped because the queue was full.
    pub not_queued: u64,
    /// Evicted to make room for others.
    pub evicted: u64,
    /// Memory used by names.
    pub bytes: u64,
}

/// The function names of all processes.
pub struct InterpretedNames<K> {
    shared: Arc<Shared<K>>,
    requests: SyncSender<Request<K>>,
}

enum Request<K> {
    Function {
        key: FunctionKey<K>,
        pid: u32,
        /// None for runtimes that are found through the process.
        interpreter: Option<Arc<DetectedInterpreter>>,
    },
    Runtime {
        process: K,
        pid: u32,
    },
}

struct Shared<K> {
    state: Mutex<State<K>>,
    /// Signalled when the queue is empty.
    idle: Condvar,
}

struct State<K> {
    functions: HashMap<FunctionKey<K>, Entry>,
    /// Forked processes have the functions of their parent, and may exit before the read.
    inherited: HashMap<(u32, SampledFunction), Arc<InterpretedFunction>>,
    /// Processes that were checked for a runtime with generated code.
    probes: HashMap<K, Probe>,
    /// Processes with generated code that have not been reported yet.
    found: Vec<(K, GeneratedCode)>,
    waiting: usize,
    round: u64,
    max_bytes: usize,
    counts: NameCounts,
}

/// The programs' data on a process with generated code.
#[derive(Clone, Copy, Debug)]
pub enum GeneratedCode {
    Java(JavaProcess),
    Beam(BeamProcess),
    DotNet(DotNetProcess),
}

struct Probe {
    state: ProbeState,
    /// How often the runtime was not ready.
    attempts: u32,
}

enum ProbeState {
    Waiting,
    /// The runtime was still starting, or may use more memory for code later.
    Until(Instant),
    Done,
}

struct Entry {
    name: Name,
    /// When it was requested.
    requested: Instant,
    /// The last round that used it.
    used: u64,
}

enum Name {
    Waiting,
    Read(Arc<InterpretedFunction>),
    /// Retried, since repeatedly compiled code often returns to the same address.
    Failed(Instant),
}

impl<K: Copy + Eq + Hash + Send + 'static> InterpretedNames<K> {
    /// Starts the reader thread. Names take this many bytes.
    pub fn start(max_bytes: usize) -> io::Result<Self> {
        let (requests, received) = sync_channel(MAX_WAITING);
        let shared = Arc::new(Shared {
            state: Mutex::new(State {
                functions: HashMap::new(),
                inherited: HashMap::new(),
                probes: HashMap::new(),
                found: Vec::new(),
                waiting: 0,
                round: 0,
                max_bytes,
                counts: NameCounts::default(),
            }),
            idle: Condvar::new(),
        });
        let reader = Reader {
            shared: Arc::clone(&shared),
            open: HashMap::new(),
            opened: 0,
            uses: 0,
            java_files: JavaFiles::default(),
            beam_files: BeamFiles::default(),
            dotnet_files: DotNetFiles::default(),
        };
        thread::Builder::new()
            .name("profcol-names".into())
            .spawn(move || reader.run(&received))?;
        Ok(Self { shared, requests })
    }

    /// Requests the name of a function that was sampled at this position.
    pub fn observe(
        &self,
        key: FunctionKey<K>,
        position: u32,
        pid: u32,
        interpreter: Option<&Arc<DetectedInterpreter>>,
    ) {
        let mut state = self.shared.state.lock();
        let round = state.round;
        if let Some(known) = state.functions.get_mut(&key) {
            known.used = round;
            match known.name {
                Name::Failed(at) if at.elapsed() >= RETRY_DELAY => {}
                Name::Read(ref function)
                    if known.requested.elapsed() >= function.recheck_delay(position) => {}
                _ => return,
            }
        }
        let request = Request::Function {
            key,
            pid,
            interpreter: interpreter.cloned(),
        };
        match self.requests.try_send(request) {
            Ok(()) => {
                state.waiting += 1;
                let now = Instant::now();
                let entry = state.functions.entry(key).or_insert(Entry {
                    name: Name::Waiting,
                    requested: now,
                    used: round,
                });
                entry.requested = now;
                // Until it is read again, a known name remains.
                if matches!(entry.name, Name::Failed(_)) {
                    entry.name = Name::Waiting;
                }
            }
            Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => {
                state.counts.not_queued += 1;
            }
        }
    }

    /// Reports sampled code of a process that was generated by an unknown runtime.
    pub fn observe_generated_code(&self, process: K, pid: u32) {
        let mut state = self.shared.state.lock();
        let attempts = match state.probes.get(&process) {
            Some(Probe {
                state: ProbeState::Until(at),
                attempts,
            }) if Instant::now() >= *at => *attempts,
            Some(_) => return,
            None => 0,
        };
        if state.probes.len() >= MAX_PROBES {
            state.probes.clear();
        }
        let request = Request::Runtime { process, pid };
        if self.requests.try_send(request).is_ok() {
            let waiting = Probe {
                state: ProbeState::Waiting,
                attempts,
            };
            state.probes.insert(process, waiting);
        }
    }

    /// Newly detected processes with generated code.
    pub fn take_processes(&self) -> Vec<(K, GeneratedCode)> {
        std::mem::take(&mut self.shared.state.lock().found)
    }

    /// Waits until all requested functions are read, or the timeout.
    pub fn wait(&self, timeout: Duration) {
        let until = Instant::now() + timeout;
        let mut state = self.shared.state.lock();
        while state.waiting > 0 {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            self.shared.idle.wait_for(&mut state, left);
        }
    }

    pub fn get(&self, key: &FunctionKey<K>) -> Option<Arc<InterpretedFunction>> {
        let state = self.shared.state.lock();
        match &state.functions.get(key)?.name {
            Name::Read(function) => Some(Arc::clone(function)),
            Name::Waiting | Name::Failed(_) => None,
        }
    }

    /// Evicts the least recently used functions if there are too many.
    pub fn end_round(&self) {
        let mut state = self.shared.state.lock();
        state.round += 1;
        // Other code may be there by now, which would go unnoticed.
        state.functions.retain(|key, _| key.function.address != 0);
        state.forget_surplus();
    }

    pub fn counts(&self) -> NameCounts {
        self.shared.state.lock().counts
    }
}

impl<K: Copy + Eq + Hash> State<K> {
    fn finish(&mut self, key: FunctionKey<K>, read: Option<InterpretedFunction>) {
        self.waiting = self.waiting.saturating_sub(1);
        let shared = (key.file, key.function);
        let function = match read {
            Some(function) => {
                self.counts.read += 1;
                let function = Arc::new(function);
                // Deduplicates equal functions of forked processes.
                let known = self
                    .inherited
                    .get(&shared)
                    .filter(|&known| *known == function);
                Some(match known {
                    Some(known) => Arc::clone(known),
                    None => {
                        self.counts.bytes += function.bytes() as u64;
                        let before = self.inherited.insert(shared, Arc::clone(&function));
                        let freed = before.map_or(0, |before| before.bytes() as u64);
                        self.counts.bytes = self.counts.bytes.saturating_sub(freed);
                        function
                    }
                })
            }
            None if key.function.is_of_process() => None,
            None => self.inherited.get(&shared).cloned(),
        };
        if function.is_none() {
            self.counts.failed += 1;
        }
        if let Some(entry) = self.functions.get_mut(&key) {
            match function {
                Some(function) => entry.name = Name::Read(function),
                // The process has exited.
                None if matches!(entry.name, Name::Read(_)) => {}
                None => entry.name = Name::Failed(Instant::now()),
            }
        }
    }

    /// Forgets the functions of a generation that begins: generations recur.
    fn forget(&mut self, process: K, generation: u32) {
        self.functions.retain(|key, entry| {
            key.process != process
                || key.function.generation != generation
                || matches!(entry.name, Name::Waiting)
        });
    }

    fn forget_surplus(&mut self) {
        let is_full = self.counts.bytes > self.max_bytes as u64;
        if !is_full && self.functions.len() <= MAX_FUNCTIONS {
            return;
        }
        let mut rounds: Vec<u64> = self.functions.values().map(|entry| entry.used).collect();
        let middle = rounds.len() / 2;
        let (_, &mut median, _) = rounds.select_nth_unstable(middle);
        let before = self.functions.len();
        self.functions
            .retain(|_, entry| entry.used > median || matches!(entry.name, Name::Waiting));
        self.counts.evicted += (before - self.functions.len()) as u64;
        self.inherited
            .retain(|_, function| Arc::strong_count(function) > 1);
        let kept = self.inherited.values();
        self.counts.bytes = kept.map(|function| function.bytes() as u64).sum();
    }
}

struct Reader<K> {
    shared: Arc<Shared<K>>,
    open: HashMap<K, Opened>,
    /// How many were opened so far.
    opened: u64,
    uses: u64,
    java_files: JavaFiles,
    beam_files: BeamFiles,
    dotnet_files: DotNetFiles,
}

struct Opened {
    /// None if opening failed.
    process: Option<OpenProcess>,
    /// The use counter at its last use.
    used: u64,
}

struct OpenProcess {
    memory: ProcessMemory,
    cache: ProcessCache,
    java: Option<Box<JavaRuntime>>,
    beam: Option<Box<BeamRuntime>>,
    dotnet: Option<Box<DotNetRuntime>>,
    /// When to look again for a runtime that was not found for a function.
    look_again: Option<Instant>,
}

impl OpenProcess {
    fn is_attached(&self) -> bool {
        self.java.is_some() || self.beam.is_some()
    }

    fn attach(
        &mut self,
        pid: u32,
        java: &mut JavaFiles,
        beam: &mut BeamFiles,
    ) -> Attached<GeneratedCode> {
        let found = java
            .attach(pid, &self.memory)
            .map(|java| GeneratedCode::Java(self.java.insert(java).process));
        if !matches!(found, Attached::None) {
            return found;
        }
        beam.attach(pid, &self.memory).map(|beam| {
            let process = beam.process;
            // It has what was read before.
            self.beam.get_or_insert(beam);
            GeneratedCode::Beam(process)
        })
    }

    fn attach_dotnet(&mut self, pid: u32, files: &mut DotNetFiles) -> Attached<GeneratedCode> {
        let found = match self.dotnet.take() {
            Some(known) => Attached::Runtime(known),
            None => files.attach(pid, &self.memory),
        };
        found.map(|dotnet| GeneratedCode::DotNet(self.dotnet.insert(dotnet).process))
    }

    /// Reads a function of generated code, and the generation of all functions of the process if it is new. None without a
    /// runtime.
    fn function(
        &mut self,
        sampled: &SampledFunction,
    ) -> Option<(Result<InterpretedFunction, FunctionError>, Option<u32>)> {
        if let Some(java) = &self.java {
            let read = java.function(&self.memory, sampled);
            return Some((read.map(|it| InterpretedFunction(Function::Java(it))), None));
        }
        let beam = self.beam.as_mut()?;
        let (read, generation) = match beam.refresh(&self.memory, sampled) {
            Ok(generation) => (beam.function(&self.memory, sampled), generation),
            // The process may have exited: some of its names are known.
            Err(error) => (
                beam.function(&self.memory, sampled).map_err(|_| error),
                None,
            ),
        };
        Some((
            read.map(|it| InterpretedFunction(Function::Beam(it))),
            generation,
        ))
    }
}

impl<K: Copy + Eq + Hash> Reader<K> {
    fn run(mut self, requests: &Receiver<Request<K>>) {
        while let Ok(request) = requests.recv() {
            match request {
                Request::Function {
                    key,
                    pid,
                    interpreter,
                } => {
                    let read = self.read(&key, pid, interpreter.as_deref());
                    let mut state = self.shared.state.lock();
                    state.finish(key, read);
                    if state.waiting == 0 {
                        self.shared.idle.notify_all();
                    }
                }
                Request::Runtime { process, pid } => {
                    let found = self.attach(process, pid);
                    let mut state = self.shared.state.lock();
                    let known = state.probes.get(&process);
                    let mut attempts = known.map_or(0, |probe| probe.attempts);
                    let next = match found {
                        Attached::None => ProbeState::Done,
                        Attached::NotYet => {
                            attempts = attempts.saturating_add(1);
                            ProbeState::Until(Instant::now() + retry_delay(attempts))
                        }
                        Attached::Runtime(code) => {
                            state.found.push((process, *code));
                            match *code {
                                GeneratedCode::Java(_) | GeneratedCode::DotNet(_) => {
                                    ProbeState::Done
                                }
                                GeneratedCode::Beam(_) => {
                                    ProbeState::Until(Instant::now() + PROBE_DELAY)
                                }
                            }
                        }
                    };
                    let probe = Probe {
                        state: next,
                        attempts,
                    };
                    state.probes.insert(process, probe);
                }
            }
        }
    }

    fn process(&mut self, process: K, pid: u32) -> Option<&mut OpenProcess> {
        if !self.open.contains_key(&process) {
            self.make_room();
        }
        self.uses += 1;
        let opened = self.open.entry(process).or_insert_with(|| {
            let opened = ProcessMemory::open(pid);
            if let Err(error) = &opened {
                tracing::debug!(pid, %error, "failed to open the memory of a process");
            }
            let process = opened.ok().map(|memory| OpenProcess {
                memory,
                cache: ProcessCache::default(),
                java: None,
                beam: None,
                dotnet: None,
                look_again: None,
            });
            Opened { process, used: 0 }
        });
        opened.used = self.uses;
        opened.process.as_mut()
    }

    /// Called before another process is opened.
    fn make_room(&mut self) {
        self.opened += 1;
        if self.opened.is_multiple_of(CLOSE_EVERY) {
            self.close_exited();
        }
        if self.open.len() >= MAX_OPEN {
            let oldest = self.open.iter().min_by_key(|(_, opened)| opened.used);
            if let Some(oldest) = oldest.map(|(process, _)| *process) {
                self.open.remove(&oldest);
            }
        }
    }

    /// Frees what the caches of exited processes hold. Their entries stay, so that a name that is asked for late is not read from
    /// another process with the same PID.
    fn close_exited(&mut self) {
        for opened in self.open.values_mut() {
            let exited = |process: &OpenProcess| process.memory.is_gone();
            if opened.process.as_ref().is_some_and(exited) {
                opened.process = None;
            }
        }
    }

    /// Looks for a runtime with generated code in a process.
    fn attach(&mut self, process: K, pid: u32) -> Attached<GeneratedCode> {
        let mut java_files = std::mem::take(&mut self.java_files);
        let mut beam_files = std::mem::take(&mut self.beam_files);
        let mut dotnet_files = std::mem::take(&mut self.dotnet_files);
        let found = match self.process(process, pid) {
            None => Attached::None,
            Some(open) => match open.attach(pid, &mut java_files, &mut beam_files) {
                Attached::None => open.attach_dotnet(pid, &mut dotnet_files),
                found => found,
            },
        };
        self.dotnet_files = dotnet_files;
        self.java_files = java_files;
        self.beam_files = beam_files;
        found
    }

    /// Finds the runtime of a process that was closed since. None if it cannot be found.
    fn attach_again(&mut self, process: K, pid: u32) -> Option<()> {
        let open = self.process(process, pid)?;
        if open.is_attached() {
            return Some(());
        }
        if open.look_again.is_some_and(|at| Instant::now() < at) {
            return None;
        }
        self.attach(process, pid);
        let open = self.process(process, pid)?;
        open.look_again = Some(Instant::now() + PROBE_DELAY);
        open.is_attached().then_some(())
    }

    fn read(
        &mut self,
        key: &FunctionKey<K>,
        pid: u32,
        interpreter: Option<&DetectedInterpreter>,
    ) -> Option<InterpretedFunction> {
        if key.function.runtime == runtime::DOTNET {
            return self.read_dotnet(key, pid);
        }
        if interpreter.is_none() {
            self.attach_again(key.process, pid)?;
        }
        let process = self.process(key.process, pid)?;
        let (read, new_generation) = match interpreter {
            Some(interpreter) => {
                let memory = &process.memory;
                let read = interpreter.function(memory, &mut process.cache, &key.function);
                (read, None)
            }
            None => process.function(&key.function)?,
        };
        if let Some(generation) = new_generation {
            self.shared.state.lock().forget(key.process, generation);
        }
        keep(read, pid)
    }

    fn read_dotnet(&mut self, key: &FunctionKey<K>, pid: u32) -> Option<InterpretedFunction> {
        if self.process(key.process, pid)?.dotnet.is_none() {
            let mut files = std::mem::take(&mut self.dotnet_files);
            let found = self
                .process(key.process, pid)
                .map(|process| process.attach_dotnet(pid, &mut files));
            self.dotnet_files = files;
            if let Some(Attached::Runtime(code)) = found {
                self.shared.state.lock().found.push((key.process, *code));
            }
        }
        let process = self.process(key.process, pid)?;
        let dotnet = process.dotnet.as_mut()?;
        let read = dotnet.function(&process.memory, key.function.address);
        keep(
            read.map(|it| InterpretedFunction(Function::DotNet(it))),
            pid,
        )
    }
}

/// The delay after so many attempts to find a runtime.
fn retry_delay(attempts: u32) -> Duration {
    let doubled = attempts.saturating_sub(QUICK_ATTEMPTS);
    let factor = 2u32.saturating_pow(doubled);
    RETRY_DELAY.saturating_mul(factor).min(MAX_RETRY_DELAY)
}

fn keep(read: Result<InterpretedFunction, FunctionError>, pid: u32) -> Option<InterpretedFunction> {
    read.inspect_err(|error| tracing::debug!(pid, %error, "failed to read the name of a function"))
        .ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_runtime_that_stays_unreadable_is_tried_less_and_less_often() {
        assert_eq!(retry_delay(1), RETRY_DELAY);
        assert_eq!(retry_delay(QUICK_ATTEMPTS), RETRY_DELAY);
        assert_eq!(retry_delay(QUICK_ATTEMPTS + 3), RETRY_DELAY * 8);
        assert_eq!(retry_delay(u32::MAX), MAX_RETRY_DELAY);
    }
}
