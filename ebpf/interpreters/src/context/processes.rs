//! Finds the contexts that libraries of processes keep, on a thread of its own: a list of mappings may be long.
//!
//! A library may be loaded, and closed, at any time, and none of it needs to be sampled: a sampled process is looked at again when it
//! was watched twice as long.

use std::collections::HashMap;
use std::convert::Infallible;
use std::fs::File;
use std::hash::Hash;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use profcol_ebpf_common::context::library::{BlockTable, LibraryVariable, ProcessContexts};
use profcol_ebpf_unwind::ElfCode;
use profcol_elf::Mapping;
use profcol_processes::{attribute_keys, process_context};

use super::library::{CLibrary, ContextFile, Library};
use crate::memory::{Memory, ProcessMemory};
use crate::runtime_files::{RuntimeFiles, code_of};

/// Maximum number of processes to look at; others are looked at after a later sample.
const MAX_WAITING: usize = 1024;
/// Maximum number of remembered files: most of those that a host maps.
const MAX_FILES: usize = 1 << 14;
/// How long files are remembered.
const FILES_AGE: Duration = Duration::from_secs(3600);

/// Maximum number of mappings of libraries with variables in a process.
const MAX_LIBRARIES: usize = 16;

const FIRST_DELAY: Duration = Duration::from_secs(1);
const LONGEST_DELAY: Duration = Duration::from_secs(60);
/// A process with many mappings is looked at less often: the thread spends at most one part of its time with it.
const PARTS_OF_TIME: u32 = 100;
/// A process that was not sampled for this time is a new one.
const FORGET_AFTER: Duration = Duration::from_secs(120);

/// The contexts in libraries, by process.
pub struct LibraryContexts<K> {
    requests: SyncSender<(K, u32)>,
    looked_at: Receiver<LookedAt<K>>,
    processes: HashMap<K, Watched>,
}

pub struct LookedAt<K> {
    process: K,
    found: ProcessContexts,
    keys: Vec<String>,
    took: Duration,
}

struct Watched {
    /// When to look at it again; none while it is looked at.
    due: Option<Instant>,
    delay: Duration,
    sampled: Instant,
    has_contexts: bool,
    keys: Vec<String>,
}

impl<K: Copy + Eq + Hash + Send + 'static> LibraryContexts<K> {
    /// Starts the thread.
    pub fn start() -> io::Result<Self> {
        let (requests, received) = sync_channel(MAX_WAITING);
        let (answers, looked_at) = channel();
        let worker = Worker::new(answers);
        thread::Builder::new()
            .name("profcol-context".into())
            .spawn(move || worker.run(&received))?;
        Ok(Self {
            requests,
            looked_at,
            processes: HashMap::new(),
        })
    }

    /// Reports a sample.
    pub fn observe(&mut self, process: K, pid: u32, now: Instant) {
        let watched = self.processes.entry(process).or_insert(Watched {
            due: Some(now),
            delay: FIRST_DELAY,
            sampled: now,
            has_contexts: false,
            keys: Vec::new(),
        });
        watched.sampled = now;
        // If the queue is full, a later sample tries again.
        if watched.due.is_some_and(|due| due <= now)
            && self.requests.try_send((process, pid)).is_ok()
        {
            watched.due = None;
        }
    }

    /// What was found since the last call: also if it was known, because the kernel may have dropped it; nothing, if that is new.
    pub fn take(&mut self, now: Instant) -> Vec<(K, Option<ProcessContexts>)> {
        let mut found = Vec::new();
        while let Ok(answer) = self.looked_at.try_recv() {
            let Some(watched) = self.processes.get_mut(&answer.process) else {
                continue;
            };
            watched.due = Some(now + watched.delay.max(answer.took * PARTS_OF_TIME));
            watched.delay = (watched.delay * 2).min(LONGEST_DELAY);
            let has_contexts = answer.found != ProcessContexts::default();
            if has_contexts || watched.has_contexts {
                found.push((answer.process, has_contexts.then_some(answer.found)));
            }
            watched.has_contexts = has_contexts;
            watched.keys = answer.keys;
        }
        found
    }

    /// The keys of the attributes in the contexts of a process, by number.
    pub fn keys(&self, process: &K) -> &[String] {
        let watched = self.processes.get(process);
        watched.map_or(&[], |watched| &watched.keys)
    }

    #[cfg(test)]
    pub fn waits_for(&self, process: K) -> bool {
        let watched = self.processes.get(&process);
        watched.is_some_and(|watched| watched.due.is_none())
    }

    /// Forgets processes that are not sampled any more.
    pub fn forget_idle(&mut self, now: Instant) {
        self.processes
            .retain(|_, watched| now.saturating_duration_since(watched.sampled) < FORGET_AFTER);
    }
}

pub struct Worker<K> {
    files: RuntimeFiles<Arc<ContextFile>>,
    files_since: Instant,
    answers: Sender<LookedAt<K>>,
}

impl<K> Worker<K> {
    pub fn new(answers: Sender<LookedAt<K>>) -> Self {
        Self {
            files: RuntimeFiles::with_limit(MAX_FILES),
            files_since: Instant::now(),
            answers,
        }
    }

    fn run(mut self, requests: &Receiver<(K, u32)>) {
        while let Ok((process, pid)) = requests.recv() {
            let begin = Instant::now();
            if begin.saturating_duration_since(self.files_since) > FILES_AGE {
                self.files.forget();
                self.files_since = begin;
            }
            let answer = LookedAt {
                process,
                found: self.look_at(pid),
                keys: keys(pid),
                took: begin.elapsed(),
            };
            if self.answers.send(answer).is_err() {
                break;
            }
        }
    }

    /// The contexts of the process, as far as they can be read.
    pub fn look_at(&mut self, pid: u32) -> ProcessContexts {
        let mut c_library = CLibrary::Glibc;
        let mut libraries: Vec<(Arc<ContextFile>, Mapping)> = Vec::new();
        for mapping in code_of(pid).filter(|mapping| mapping.file.is_some()) {
            let Ok(known) = self.files.get_or_detect(pid, &mapping, |code, file| {
                Ok::<_, Infallible>(read(code, file, &mapping))
            });
            match known {
                None => {}
                Some(file) if *file == ContextFile::MuslProgram => c_library = CLibrary::Musl,
                Some(file) if libraries.len() < MAX_LIBRARIES => libraries.push((file, mapping)),
                Some(_) => {}
            }
        }
        let located = libraries
            .iter()
            .filter_map(|(file, mapping)| match &**file {
                ContextFile::MuslProgram => None,
                ContextFile::Library(library) => Some((library, library.bias(mapping)?)),
            });
        let located: Vec<(&Library, u64)> = located.collect();
        if located.is_empty() {
            return ProcessContexts::default();
        }
        match ProcessMemory::open(pid) {
            Ok(memory) => locate(&located, c_library, &memory),
            Err(error) => {
                tracing::debug!(pid, %error, "failed to open the memory of a process");
                ProcessContexts::default()
            }
        }
    }
}

/// The variables of these libraries, each with the distance of its addresses from those in the file.
fn locate(
    libraries: &[(&Library, u64)],
    c_library: CLibrary,
    memory: &impl Memory,
) -> ProcessContexts {
    let mut found: Vec<LibraryVariable> = Vec::new();
    let mut table = BlockTable::default();
    for (library, bias) in libraries {
        for variable in library.locate(*bias, c_library, memory) {
            let place = |it: &LibraryVariable| (it.kind, it.module, it.offset);
            // The dynamic linker lets libraries share a variable with a common name.
            if found.iter().all(|known| place(known) != place(&variable)) {
                table = library.block_table(c_library);
                found.push(variable);
            }
        }
    }
    let mut contexts = ProcessContexts {
        table,
        ..ProcessContexts::default()
    };
    for (place, variable) in contexts.variables.iter_mut().zip(found) {
        *place = variable;
    }
    contexts
}

/// The keys of the attributes that the process publishes in its process context.
fn keys(pid: u32) -> Vec<String> {
    let Ok(Some(context)) = process_context(Path::new("/proc"), pid) else {
        return Vec::new();
    };
    attribute_keys(&context).unwrap_or_default()
}

/// What the file of a mapping tells.
fn read(code: &ElfCode, file: &File, mapping: &Mapping) -> Option<Arc<ContextFile>> {
    let path = mapping.path.display();
    match ContextFile::read(code, file) {
        Ok(found) => {
            if let Some(ContextFile::Library(_)) = &found {
                tracing::info!(%path, "Found a library with thread contexts.");
            }
            found.map(Arc::new)
        }
        Err(error) => {
            tracing::warn!(%path, %error, "Failed to find the thread contexts of a library.");
            None
        }
    }
}
