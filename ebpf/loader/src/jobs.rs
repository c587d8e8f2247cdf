//! The queue of the thread that builds unwind tables.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Instant;

use parking_lot::{Condvar, Mutex};
use profcol_ebpf_interpreters::dotnet::ProgramDirectory;
use profcol_ebpf_reader::CodeFile;
use profcol_ebpf_unwind as unwind;

use crate::files::AnnouncedFile;

/// Maximum number of queued files, each open. Dropped files are announced again by a later sample.
const MAX_FILES: usize = 512;
/// Maximum number of queued pages. Dropped pages are requested again by a later sample.
const MAX_PAGES: usize = 4096;

/// A file whose table must be built.
pub struct Job {
    pub announced: AnnouncedFile,
    pub path: String,
    pub file: CodeFile,
    pub code: Code,
}

/// What kind of file has the code.
pub enum Code {
    Elf(unwind::ElfCode),
    /// An assembly of .NET, with so many bytes.
    Assembly(u64),
}

/// The next task of the builder.
pub enum Task {
    Build(Box<Job>),
    /// There are too many files.
    Evict,
    /// Build a page of a lazy table.
    Page {
        number: u32,
        page: u64,
    },
    /// Build remaining pages in the background.
    Remaining,
    /// There was nothing to do for a while.
    Rest,
}

/// Builds the smallest file first: most stacks need small ones, and a large one would delay all others.
#[derive(Default)]
pub struct JobQueue {
    state: Mutex<QueueState>,
    changed: Condvar,
}

#[derive(Default)]
struct QueueState {
    /// By size, then in order of arrival.
    files: BTreeMap<(u64, u64), Job>,
    pages: BTreeSet<(u32, u64)>,
    /// The lazy table whose page was taken last.
    lazy: u32,
    sequence: u64,
    evict: bool,
    closed: bool,
}

impl Job {
    /// Where its process finds the file.
    pub fn directory(&self) -> Option<ProgramDirectory> {
        ProgramDirectory::of_file(self.announced.pid(), Path::new(&self.path))
    }

    /// Bytes of code, an estimate of the build time.
    pub fn size(&self) -> u64 {
        match &self.code {
            Code::Elf(elf) => elf.segments.iter().map(|it| it.file_size).sum(),
            Code::Assembly(bytes) => *bytes,
        }
    }
}

impl QueueState {
    /// A page of the next lazy table, round robin.
    fn take_page(&mut self) -> Option<(u32, u64)> {
        let mut others = self.pages.range((self.lazy.saturating_add(1), 0)..);
        let next = others.next().or(self.pages.first()).copied()?;
        self.pages.remove(&next);
        self.lazy = next.0;
        Some(next)
    }
}

impl JobQueue {
    /// Returns the job if the queue is full.
    pub fn add(&self, job: Job) -> Result<(), Box<Job>> {
        let mut state = self.state.lock();
        if state.files.len() >= MAX_FILES {
            return Err(Box::new(job));
        }
        state.sequence += 1;
        let place = (job.size(), state.sequence);
        state.files.insert(place, job);
        self.changed.notify_one();
        Ok(())
    }

    pub fn request_pages(&self, pages: &[(u32, u64)]) {
        let mut state = self.state.lock();
        for &page in pages {
            if state.pages.len() < MAX_PAGES && state.pages.insert(page) {
                self.changed.notify_one();
            }
        }
    }

    pub fn evict(&self) {
        self.state.lock().evict = true;
        self.changed.notify_one();
    }

    pub fn is_idle(&self) -> bool {
        let state = self.state.lock();
        state.files.is_empty() && state.pages.is_empty()
    }

    /// Ends the builder.
    pub fn close(&self) {
        self.state.lock().closed = true;
        self.changed.notify_all();
    }

    pub fn is_closed(&self) -> bool {
        self.state.lock().closed
    }

    /// Waits for a task, unless pages remain to be built in the background, and no longer than until `rest_at`. None after
    /// `close`, which discards queued tasks.
    pub fn next(&self, has_remaining: bool, rest_at: Option<Instant>) -> Option<Task> {
        let mut state = self.state.lock();
        loop {
            if state.closed {
                return None;
            }
            if std::mem::take(&mut state.evict) {
                return Some(Task::Evict);
            }
            // Files first: their number is finite, while lazy tables request pages for as long as they run.
            if let Some((_, job)) = state.files.pop_first() {
                return Some(Task::Build(Box::new(job)));
            }
            if let Some((number, page)) = state.take_page() {
                return Some(Task::Page { number, page });
            }
            if has_remaining {
                return Some(Task::Remaining);
            }
            match rest_at {
                Some(at) if at <= Instant::now() => return Some(Task::Rest),
                Some(at) => {
                    self.changed.wait_until(&mut state, at);
                }
                None => self.changed.wait(&mut state),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lazy_tables_take_turns() {
        let jobs = JobQueue::default();
        let mut requests = vec![(7, 1), (5, 1), (5, 2), (9, 1)];
        jobs.request_pages(&requests);
        let mut taken = Vec::new();
        while let Some(Task::Page { number, page }) = jobs.next(true, None) {
            taken.push((number, page));
            if taken.len() < 20 {
                // One with endless requests.
                jobs.request_pages(&[(5, 2 + taken.len() as u64)]);
            }
        }
        requests.sort_unstable();
        for page in requests {
            assert!(taken.contains(&page), "{page:?} in {taken:?}");
        }
        let place = |number| taken.iter().position(|&(of, _)| of == number);
        assert!(place(9) < Some(taken.len() - 1), "{taken:?}");
    }

    #[test]
    fn rests_when_it_is_time_also_after_other_tasks() {
        let jobs = JobQueue::default();
        let rest_at = Instant::now() + std::time::Duration::from_millis(50);
        assert!(matches!(jobs.next(false, Some(rest_at)), Some(Task::Rest)));
        assert!(Instant::now() >= rest_at);
        jobs.evict();
        assert!(matches!(jobs.next(false, Some(rest_at)), Some(Task::Evict)));
        assert!(matches!(jobs.next(false, Some(rest_at)), Some(Task::Rest)));
    }

    #[test]
    fn background_pages_come_last() {
        let jobs = JobQueue::default();
        jobs.request_pages(&[(1, 1)]);
        assert!(matches!(jobs.next(true, None), Some(Task::Page { .. })));
        assert!(matches!(jobs.next(true, None), Some(Task::Remaining)));
        jobs.close();
        assert!(jobs.next(true, None).is_none());
    }
}
