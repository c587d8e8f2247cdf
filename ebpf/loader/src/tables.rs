//! Provides the programs with the unwind tables of sampled files.
//!
//! Two threads: one opens files immediately, since their processes may exit soon, the other builds their
//! tables, at low priority if configured.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{SyncSender, TrySendError, sync_channel};
use std::thread::{Builder as Thread, JoinHandle, sleep};
use std::time::{Duration, Instant};

use profcol_ebpf_common::context::ContextLayout;
use profcol_ebpf_common::interpreter::Interpreter;
use profcol_ebpf_reader::CodeReader;
use profcol_reader::Readers;

use crate::arena::Arena;
use crate::builder::Builder;
use crate::file_map::FileMap;
use crate::files::{AnnouncedFile, Files};
use crate::identify::FileIdentifier;
use crate::jobs::JobQueue;
use crate::opener::{OnOpened, Opener};
use crate::path_resolver::PathResolver;
use crate::runtime_counts::RuntimeCounts;
use crate::table_counts::{Stats, TableCounts};

/// Maximum number of files waiting to be opened. Dropped files are announced again by a later sample.
const QUEUE_CAPACITY: usize = 1024;

/// How long shutdown waits for the threads: on a busy host one may still be building a table.
const JOIN_TIMEOUT: Duration = Duration::from_millis(500);
/// How often shutdown checks whether they have ended.
const JOIN_POLL_INTERVAL: Duration = Duration::from_millis(5);

/// The threads and the queues to them.
pub struct Tables {
    announced: Option<SyncSender<AnnouncedFile>>,
    jobs: Arc<JobQueue>,
    files: Arc<Files>,
    threads: Vec<JoinHandle<()>>,
    stats: Arc<Stats>,
}

/// The state of the threads.
pub struct TableParts {
    pub arena: Arena,
    pub files: Files,
    pub identifier: FileIdentifier,
    pub interpreters: FileMap<Interpreter>,
    pub contexts: FileMap<ContextLayout>,
}

impl Tables {
    pub fn start(
        parts: TableParts,
        on_opened: Option<OnOpened>,
        low_priority: bool,
        readers: &Readers,
    ) -> io::Result<Self> {
        let TableParts {
            mut arena,
            files,
            identifier,
            interpreters,
            contexts,
        } = parts;
        let empty_table = arena.insert_empty().map_err(io::Error::other)?;
        let (announced, to_open) = sync_channel(QUEUE_CAPACITY);
        let stats = Arc::<Stats>::default();
        let jobs = Arc::<JobQueue>::default();
        let files = Arc::new(files);
        let opener = Opener {
            identifier,
            files: Arc::clone(&files),
            jobs: Arc::clone(&jobs),
            stats: Arc::clone(&stats),
            path_resolver: PathResolver::new(),
            empty_table,
            on_opened,
        };
        let (stopping, failures) = (Arc::clone(&jobs), Arc::clone(&stats));
        let reader = CodeReader::new(
            readers,
            low_priority,
            move || !stopping.is_closed(),
            move |failure| {
                Stats::count(&failures.reader_failures);
                tracing::warn!(reason = %failure, "The process that reads executables for unwind tables failed; starting another one.");
            },
        );
        let builder = Builder {
            arena,
            files: Arc::clone(&files),
            jobs: Arc::clone(&jobs),
            stats: Arc::clone(&stats),
            lazy_tables: HashMap::new(),
            unfinished: VecDeque::new(),
            allocations: HashMap::new(),
            interpreters,
            contexts,
            empty_table,
            low_priority,
            reader,
        };
        let mut tables = Self {
            announced: Some(announced),
            jobs,
            files,
            threads: Vec::new(),
            stats,
        };
        let thread = |name: &str| Thread::new().name(name.into());
        tables
            .threads
            .push(thread("profcol-open").spawn(move || opener.run(&to_open))?);
        tables
            .threads
            .push(thread("profcol-tables").spawn(move || builder.run())?);
        Ok(tables)
    }

    pub fn counts(&self) -> TableCounts {
        self.stats.counts()
    }

    pub fn runtime_counts(&self) -> RuntimeCounts {
        self.stats.runtimes.lock().clone()
    }

    /// Makes the path of a newly sampled file known.
    pub fn announce(&self, announced: &AnnouncedFile) {
        self.files.announce(announced);
    }

    /// Queues a newly sampled file.
    pub fn build(&self, announced: AnnouncedFile) {
        let Some(to_open) = &self.announced else {
            return;
        };
        if !self.files.take(&announced) {
            return;
        }
        if let Err(TrySendError::Full(announced)) = to_open.try_send(announced) {
            tracing::debug!(
                number = announced.file.number,
                "queue of new executables is full"
            );
            self.files.retry_later(&announced.file);
        }
        self.evict_surplus();
    }

    /// Lets the next sample announce the file again.
    pub fn postpone(&self, announced: &AnnouncedFile) {
        self.files.postpone(&announced.file);
        self.evict_surplus();
    }

    fn evict_surplus(&self) {
        if self.files.surplus() > 0 {
            self.jobs.evict();
        }
    }

    /// All drained records are symbolized: numbers of evicted files may be reused.
    pub fn release_file_numbers(&self) {
        self.files.free_quarantined_numbers();
    }

    /// Requests missing pages that samples needed: the number of the file, and that of the page.
    pub fn request_pages(&self, pages: &[(u32, u64)]) {
        if !pages.is_empty() {
            self.jobs.request_pages(pages);
        }
    }
}

impl Drop for Tables {
    fn drop(&mut self) {
        // Closing the opener's queue ends it, which in turn closes the builder's queue.
        self.announced.take();
        self.jobs.close();
        let until = Instant::now() + JOIN_TIMEOUT;
        for thread in self.threads.drain(..) {
            while !thread.is_finished() && Instant::now() < until {
                sleep(JOIN_POLL_INTERVAL);
            }
            // A slow thread owns all it uses, so it may be detached.
            if thread.is_finished() && thread.join().is_err() {
                tracing::error!("An unwind table thread panicked.");
            }
        }
    }
}
