//! Builds unwind tables and publishes them.
//!
//! Tables of large files are built lazily, by pages: most code of a library of a hundred megabytes is never
//! executed. After several page requests, the remaining pages are built in the background. All other tables
//! are built as a whole.

use std::collections::{HashMap, VecDeque};
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use profcol_ebpf_common::context::ContextLayout;
use profcol_ebpf_common::file::TableRef;
use profcol_ebpf_common::interpreter::Interpreter;
use profcol_ebpf_common::table::PAGE_SHIFT;
use profcol_ebpf_interpreters::dotnet::DotNetFile;
use profcol_ebpf_interpreters::language_runtimes::KnownRuntime;
use profcol_ebpf_interpreters::{DetectedInterpreter, FileRuntime, Runtime};
use profcol_ebpf_reader::{Built, CodeFile, CodeReader, ReadError};
use profcol_ebpf_unwind as unwind;
use profcol_reader::LOW_TABLE_NICE;

use crate::arena::{AllocError, Allocation, Arena};
use crate::file_map::FileMap;
use crate::files::{AnnouncedFile, Files};
use crate::jobs::{Code, Job, JobQueue, Task};
use crate::sys;
use crate::table_counts::Stats;

/// Tables for at least this many bytes of code are built page by page.
const LAZY_CODE_BYTES: u64 = 16 << 20;

/// Building a table for this many bytes of code leaves megabytes of unused heap.
const TRIM_AFTER_BYTES: u64 = 1 << 20;

/// Pages of a lazy table built per request: code next to running code is likely to run too.
const PAGES_PER_BUILD: u64 = 64;

/// Requests for pages of a lazy table before all its remaining pages are built.
const REQUESTS_BEFORE_FULL_BUILD: u32 = 4;

/// Remaining pages to build before checking for new requests.
const BACKGROUND_PAGES: u64 = 256;

/// Memory to free for the pages of a lazy table.
const PAGE_EVICTION_BYTES: u64 = 1 << 20;

/// Maximum number of lazy tables; each keeps its file open.
const MAX_LAZY_TABLES: usize = 256;

/// The process that reads files ends if there was nothing to read for this time.
const REST_AFTER: Duration = Duration::from_secs(30);

/// A table used within this time is not evicted for another one: it would be needed again immediately.
const RECENT_USE: Duration = Duration::from_secs(10);

pub struct Builder {
    pub arena: Arena,
    pub files: Arc<Files>,
    pub jobs: Arc<JobQueue>,
    pub stats: Arc<Stats>,
    pub lazy_tables: HashMap<u32, LazyTable>,
    /// Lazy tables whose remaining pages are built when idle.
    pub unfinished: VecDeque<u32>,
    /// The tables that were built as a whole, by file number.
    pub allocations: HashMap<u32, Allocation>,
    pub interpreters: FileMap<Interpreter>,
    pub contexts: FileMap<ContextLayout>,
    /// The table of files without unwind information.
    pub empty_table: TableRef,
    pub low_priority: bool,
    /// Builds the tables.
    pub reader: CodeReader,
}

/// A file whose table is built page by page.
pub struct LazyTable {
    announced: AnnouncedFile,
    path: String,
    file: CodeFile,
    pages: Allocation,
    table: TableRef,
    loops: Vec<Range<u64>>,
    /// How many times pages were requested.
    requests: u32,
    /// The next page to build in the background.
    next_remaining: u64,
}

#[derive(Debug, thiserror::Error)]
enum BuildError {
    #[error(transparent)]
    Table(#[from] unwind::UnwindTableError),
    #[error(transparent)]
    Read(#[from] ReadError),
    #[error(transparent)]
    AllocError(#[from] AllocError),
}

impl Builder {
    pub fn run(mut self) {
        if self.low_priority {
            sys::lower_priority(LOW_TABLE_NICE);
        }
        let jobs = Arc::clone(&self.jobs);
        let mut read = 0;
        loop {
            let rest_at = self.reader.idle_since().map(|since| since + REST_AFTER);
            let Some(next) = jobs.next(!self.unfinished.is_empty(), rest_at) else {
                break;
            };
            match next {
                Task::Build(job) => {
                    read += job.size();
                    self.build(*job);
                }
                Task::Page { number, page } => self.build_pages(number, page),
                Task::Evict => self.evict_surplus(),
                Task::Remaining => self.build_remaining(),
                Task::Rest => self.reader.rest(),
            }
            self.stats
                .table_bytes
                .store(self.arena.used_bytes(), Ordering::Relaxed);
            if read >= TRIM_AFTER_BYTES && jobs.is_idle() {
                read = 0;
                sys::release_heap();
            }
        }
    }

    fn build(&mut self, job: Job) {
        let built = match &job.code {
            Code::Elf(elf) => {
                let dotnet = self.find_dotnet(&job, elf);
                self.build_elf(&job, elf, dotnet)
            }
            Code::Assembly(_) => self.build_assembly(&job),
        };
        if let Err(error) = built {
            if matches!(error, BuildError::AllocError(AllocError::Full))
                && self.evict_for(job.size())
            {
                // Freed memory is still in quarantine.
                self.files.retry_later(&job.announced.file);
            } else {
                self.report(&job.path, &error);
                self.files.publish(&job.announced.file, TableRef::REFUSED);
            }
        }
    }

    fn build_elf(
        &mut self,
        job: &Job,
        elf: &unwind::ElfCode,
        dotnet: Option<FileRuntime>,
    ) -> Result<(), BuildError> {
        let number = job.announced.file.number;
        let may_be_lazy = job.size() >= LAZY_CODE_BYTES && self.lazy_tables.len() < MAX_LAZY_TABLES;
        let code = self.reader.read(number.into(), &job.file, elf, may_be_lazy);
        self.publish_contexts(job, code.features.contexts);
        self.report_runtime(job, code.features.runtime.or(dotnet));
        let interpreter = code.features.interpreter;
        let mut table = match code.table? {
            Built::Whole(table) => table,
            Built::Lazy => {
                let begun = self.begin_lazy(job, elf, interpreter);
                if !self.lazy_tables.contains_key(&number) {
                    self.reader.forget(number.into());
                }
                return begun;
            }
        };
        let loops = self.interpreter_loops(job, interpreter);
        if !loops.is_empty() {
            table.mark_interpreter(&loops);
        }
        let file = self.files.sampled_files().get(job.announced.file.number);
        let bundle = file
            .as_ref()
            .and_then(|file| file.dotnet.as_ref()?.bundle());
        if let Some(bundle) = bundle
            && let Some(assemblies) = unwind::Table::of_bundle(bundle, &*job.file.source)?
        {
            table.append(assemblies)?;
        }
        self.publish_table(job, &table)
    }

    fn build_assembly(&mut self, job: &Job) -> Result<(), BuildError> {
        match unwind::Table::of_assembly(&*job.file.source)? {
            Some(table) => self.publish_table(job, &table),
            None => {
                // Its code has no rules.
                self.files.publish(&job.announced.file, self.empty_table);
                Ok(())
            }
        }
    }

    fn publish_table(&mut self, job: &Job, table: &unwind::Table) -> Result<(), BuildError> {
        let allocation = self.arena.insert(table)?;
        let place = TableRef {
            pages: allocation.start,
            first_page: table.first_page as u32,
            page_count: table.pages.len() as u32,
        };
        if !self.files.publish(&job.announced.file, place) {
            self.arena.remove(allocation);
            return Ok(());
        }
        self.allocations
            .insert(job.announced.file.number, allocation);
        Stats::count(&self.stats.built);
        tracing::debug!(
            path = job.path,
            rows = table.rows.len(),
            milliseconds = job.announced.age().as_millis(),
            "built an unwind table"
        );
        Ok(())
    }

    /// Publishes a table without any built page.
    fn begin_lazy(
        &mut self,
        job: &Job,
        elf: &unwind::ElfCode,
        interpreter: Option<DetectedInterpreter>,
    ) -> Result<(), BuildError> {
        let segments = elf.segments.iter();
        let first = segments
            .clone()
            .map(|it| it.file_offset >> PAGE_SHIFT)
            .min();
        let last = segments
            .map(|it| it.file_end().saturating_sub(1) >> PAGE_SHIFT)
            .max();
        let (first, last) = (first.unwrap_or_default(), last.unwrap_or_default());
        let count = u32::try_from(last - first + 1).unwrap_or(u32::MAX);
        let pages = self.arena.reserve_pages(count)?;
        let table = TableRef {
            pages: pages.start,
            first_page: first as u32,
            page_count: count,
        };
        if !self.files.publish(&job.announced.file, table) {
            self.arena.remove(pages);
            return Ok(());
        }
        Stats::count(&self.stats.built);
        tracing::debug!(
            path = job.path,
            pages = count,
            milliseconds = job.announced.age().as_millis(),
            "building an unwind table by pages"
        );
        let number = job.announced.file.number;
        let loops = self.interpreter_loops(job, interpreter);
        let lazy = LazyTable {
            announced: job.announced.clone(),
            path: job.path.clone(),
            file: job.file.clone(),
            pages,
            table,
            loops,
            requests: 0,
            next_remaining: first,
        };
        self.lazy_tables.insert(number, lazy);
        Ok(())
    }

    /// The file's interpreter loops. Publishes the interpreter to the programs.
    fn interpreter_loops(
        &mut self,
        job: &Job,
        interpreter: Option<DetectedInterpreter>,
    ) -> Vec<Range<u64>> {
        let Some(detected) = interpreter else {
            return Vec::new();
        };
        let number = job.announced.file.number;
        if let Err(error) = self.interpreters.add(number, &detected.interpreter) {
            tracing::warn!(path = job.path, %error, "Failed to add an interpreter; showing its native frames.");
            return Vec::new();
        }
        let loops = detected.loops.clone();
        let sampled_files = self.files.sampled_files();
        sampled_files.set_interpreter(number, Arc::new(detected));
        loops
    }

    /// Tells the programs where threads of this executable have contexts.
    fn publish_contexts(&mut self, job: &Job, contexts: Result<Option<ContextLayout>, String>) {
        match contexts {
            Ok(None) => {}
            Ok(Some(layout)) => {
                let number = job.announced.file.number;
                if let Err(error) = self.contexts.add(number, &layout) {
                    tracing::warn!(
                        path = job.path, %error,
                        "Failed to add an executable; samples of its threads have no labels."
                    );
                }
            }
            Err(unsupported) => {
                tracing::warn!(
                    path = job.path,
                    reason = %unsupported,
                    "Failed to find the goroutines of a Go program; its samples have no goroutine IDs and labels."
                );
            }
        }
    }

    /// .NET in a file, and what runtime it is.
    fn find_dotnet(&self, job: &Job, elf: &unwind::ElfCode) -> Option<FileRuntime> {
        match DotNetFile::of_executable(elf, &job.file.source, job.directory()) {
            Ok(None) => None,
            Ok(Some(found)) => {
                let runtime = found.runtime.as_ref().map(|runtime| {
                    FileRuntime::supported(Runtime::DotNet, Some(runtime.version.clone()))
                });
                let sampled_files = self.files.sampled_files();
                sampled_files.set_dotnet(job.announced.file.number, found);
                runtime
            }
            Err(error) => Some(FileRuntime::refused(Runtime::DotNet, &error)),
        }
    }

    /// Logs and counts the runtime in a file, once for all of its processes.
    fn report_runtime(&self, job: &Job, found: Option<FileRuntime>) {
        let (runtime, version, unsupported) = match found {
            Some(found) => (found.runtime.name(), found.version, found.unsupported),
            None => match KnownRuntime::of_unread_file(Path::new(&job.path)) {
                Some(known) => (known.id, None, Some(known.unsupported())),
                None => return,
            },
        };
        let is_supported = unsupported.is_none();
        self.stats
            .runtimes
            .lock()
            .count(runtime, version.as_deref(), is_supported);
        match unsupported {
            None => tracing::info!(
                path = job.path,
                runtime,
                version = version.as_deref().unwrap_or("unknown"),
                "Found an interpreter."
            ),
            Some(reason) => tracing::warn!(
                path = job.path,
                reason,
                "Interpreter not supported; showing its native frames."
            ),
        }
    }

    /// Builds the page and those around it.
    fn build_pages(&mut self, number: u32, page: u64) {
        let Some(lazy) = self.lazy_tables.get_mut(&number) else {
            return;
        };
        lazy.requests = lazy.requests.saturating_add(1);
        if lazy.requests == REQUESTS_BEFORE_FULL_BUILD {
            self.unfinished.push_back(number);
        }
        let begin = page & !(PAGES_PER_BUILD - 1);
        if let Err(error) = self.build_missing(number, begin..begin + PAGES_PER_BUILD) {
            let is_full = matches!(error, BuildError::AllocError(AllocError::Full));
            if is_full && self.evict_for(PAGE_EVICTION_BYTES) {
                return;
            }
            let Some(lazy) = self.lazy_tables.get(&number) else {
                return;
            };
            let place = page.saturating_sub(lazy.table.first_page.into());
            if is_full && place < lazy.table.page_count.into() {
                // Stops repeated requests for it.
                self.arena.abandon_page(lazy.pages, place as u32);
            }
            self.report(&lazy.path, &error);
        }
    }

    /// Builds some more pages of a frequently requested table.
    fn build_remaining(&mut self) {
        let Some(&number) = self.unfinished.front() else {
            return;
        };
        let Some(lazy) = self.lazy_tables.get_mut(&number) else {
            self.unfinished.pop_front();
            return;
        };
        let begin = lazy.next_remaining;
        lazy.next_remaining += BACKGROUND_PAGES;
        let (path, age) = (&lazy.path, lazy.announced.age());
        if begin >= u64::from(lazy.table.first_page) + u64::from(lazy.table.page_count) {
            let milliseconds = age.as_millis();
            tracing::debug!(
                path,
                milliseconds,
                "built the remaining pages of an unwind table"
            );
            self.unfinished.pop_front();
        } else if self.arena.used_bytes() > self.arena.bytes() / 4 * 3 {
            // The memory left is for requested pages.
            tracing::debug!(
                path,
                "leaving the remaining pages of an unwind table unbuilt until they are needed"
            );
            self.unfinished.pop_front();
        } else if let Err(error) = self.build_missing(number, begin..begin + BACKGROUND_PAGES) {
            tracing::debug!(number, %error, "failed to build pages of an unwind table");
        }
    }

    /// Builds the missing pages. Marks pages that cannot be built as empty, unless memory was the reason.
    fn build_missing(&mut self, number: u32, pages: Range<u64>) -> Result<(), BuildError> {
        let Some(lazy) = self.lazy_tables.get(&number) else {
            return Ok(());
        };
        let first = u64::from(lazy.table.first_page);
        let end = pages.end.min(first + u64::from(lazy.table.page_count));
        let index = lazy.pages;
        let is_missing = |arena: &Arena, page: &u64| !arena.has_page(index, (*page - first) as u32);
        let mut missing =
            (pages.start.max(first)..end).filter(|page| is_missing(&self.arena, page));
        let Some(begin) = missing.next() else {
            return Ok(());
        };
        let count = missing.next_back().map_or(1, |last| last - begin + 1);
        let built = self.reader.pages(number.into(), &lazy.file, begin, count);
        let place = (begin - first) as u32;
        let error = match built {
            Ok(mut table) => {
                if !lazy.loops.is_empty() {
                    table.mark_interpreter(&lazy.loops);
                }
                match self.arena.insert_pages(index, place, &table) {
                    Ok(()) => return Ok(()),
                    Err(AllocError::Full) => return Err(AllocError::Full.into()),
                    Err(error) => error.into(),
                }
            }
            Err(_) if count > 1 => {
                // An error in one page does not affect the others.
                let mut each = Ok(());
                for page in begin..begin + count {
                    each = self.build_missing(number, page..page + 1).and(each);
                }
                return each;
            }
            Err(refused) => refused.into(),
        };
        for page in begin..begin + count {
            if is_missing(&self.arena, &page) {
                self.arena.abandon_page(index, (page - first) as u32);
            }
        }
        Err(error)
    }

    /// Frees about as much memory as a table for this much code needs, from unused tables. False if there
    /// are none.
    fn evict_for(&mut self, code_bytes: u64) -> bool {
        if self.arena.quarantined_bytes() >= code_bytes {
            return true;
        }
        let before = self.arena.used_bytes();
        let files = Arc::clone(&self.files);
        files.evict(RECENT_USE, |number| {
            self.remove(number);
            before - self.arena.used_bytes() >= code_bytes
        });
        self.arena.used_bytes() < before
    }

    fn evict_surplus(&mut self) {
        let files = Arc::clone(&self.files);
        let mut surplus = files.surplus();
        if surplus > 0 {
            files.evict(Duration::ZERO, |number| {
                self.remove(number);
                surplus -= 1;
                surplus == 0
            });
        }
    }

    fn remove(&mut self, number: u32) {
        Stats::count(&self.stats.evicted);
        self.interpreters.remove(number);
        self.contexts.remove(number);
        if let Some(allocation) = self.allocations.remove(&number) {
            self.arena.remove(allocation);
        }
        if let Some(lazy) = self.lazy_tables.remove(&number) {
            self.arena.remove_pages(lazy.pages);
            self.reader.forget(number.into());
        }
    }

    fn report(&self, path: &str, error: &BuildError) {
        match error {
            BuildError::Read(ReadError::Reader(failure)) => {
                Stats::count(&self.stats.refused);
                tracing::warn!(path, reason = %failure, "No unwind table for an executable: the process that reads it failed.");
            }
            BuildError::Table(_) | BuildError::Read(_) => {
                Stats::count(&self.stats.refused);
                tracing::debug!(path, %error, "no unwind table for an executable");
            }
            BuildError::AllocError(full) => {
                Stats::count(&self.stats.no_room);
                tracing::warn!(path, error = %full, "No memory for the unwind table of an executable. Raise `max_table_memory_mib`.");
            }
        }
    }
}
