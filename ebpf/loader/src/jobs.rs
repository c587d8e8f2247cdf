//! The queue of the thread that builds unwind tables.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use profcol_ebpf_unwind as unwind;
use profcol_elf::Source;

use crate::files::AnnouncedFile;

/// Files that wait, each open. One that finds no room is announced again by a later sample.
const MAX_FILES: usize = 512;
/// Pages that are wanted. One that finds no room is wanted again by a later sample.
const MAX_PAGES: usize = 4096;

/// A file whose table is to be built.
pub struct Job {
    pub announced: AnnouncedFile,
    pub path: String,
    pub source: Box<dyn Source + Send>,
    pub elf: unwind::ElfCode,
}

/// What to do next.
pub enum Task {
    Build(Box<Job>),
    /// There are too many files.
    Evict,
    /// A page of a file that is built page by page.
    Page {
        number: u32,
        page: u64,
    },
    /// What nobody waits for.
    Remaining,
}

/// The smallest file is built first: most stacks need small ones, and a large one would hold up all
/// others.
#[derive(Default)]
pub struct JobQueue {
    state: Mutex<QueueState>,
    changed: Condvar,
}

#[derive(Default)]
struct QueueState {
    /// By size, and then in the order in which they came.
    files: BTreeMap<(u64, u64), Job>,
    pages: BTreeSet<(u32, u64)>,
    /// The giant whose page was taken last.
    lazy: u32,
    sequence: u64,
    evict: bool,
    closed: bool,
}

impl Job {
    /// Bytes of code, which tell how long it will take.
    pub fn size(&self) -> u64 {
        self.elf
            .segments
            .iter()
            .map(|segment| segment.file_size)
            .sum()
    }
}

impl QueueState {
    /// A page of the next giant, so that all have their turn.
    fn take_page(&mut self) -> Option<(u32, u64)> {
        let mut others = self.pages.range((self.lazy.saturating_add(1), 0)..);
        let next = others.next().or(self.pages.first()).copied()?;
        self.pages.remove(&next);
        self.lazy = next.0;
        Some(next)
    }
}

impl JobQueue {
    /// Gives the job back where there is no room.
    pub fn add(&self, job: Job) -> Result<(), Box<Job>> {
        let mut state = self.lock();
        if state.files.len() >= MAX_FILES {
            return Err(Box::new(job));
        }
        state.sequence += 1;
        let place = (job.size(), state.sequence);
        state.files.insert(place, job);
        self.changed.notify_one();
        Ok(())
    }

    pub fn request_page(&self, number: u32, page: u64) {
        let mut state = self.lock();
        if state.pages.len() < MAX_PAGES && state.pages.insert((number, page)) {
            self.changed.notify_one();
        }
    }

    pub fn evict(&self) {
        self.lock().evict = true;
        self.changed.notify_one();
    }

    pub fn is_idle(&self) -> bool {
        let state = self.lock();
        state.files.is_empty() && state.pages.is_empty()
    }

    /// Nothing comes any more.
    pub fn close(&self) {
        self.lock().closed = true;
        self.changed.notify_all();
    }

    /// Waits for something to do, unless there is a rest; none at the end. What still waits then is not
    /// needed any more.
    pub fn next(&self, has_remaining: bool) -> Option<Task> {
        let mut state = self.lock();
        loop {
            if state.closed {
                return None;
            }
            if std::mem::take(&mut state.evict) {
                return Some(Task::Evict);
            }
            // Files first: there is an end to them, while giants want pages for as long as they run.
            if let Some((_, job)) = state.files.pop_first() {
                return Some(Task::Build(Box::new(job)));
            }
            if let Some((number, page)) = state.take_page() {
                return Some(Task::Page { number, page });
            }
            if has_remaining {
                return Some(Task::Remaining);
            }
            state = self
                .changed
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn lock(&self) -> MutexGuard<'_, QueueState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_giant_has_its_turn() {
        let jobs = JobQueue::default();
        let mut wanted = vec![(7, 1), (5, 1), (5, 2), (9, 1)];
        for &(number, page) in &wanted {
            jobs.request_page(number, page);
        }
        let mut taken = Vec::new();
        while let Some(Task::Page { number, page }) = jobs.next(true) {
            taken.push((number, page));
            if taken.len() < 20 {
                // One that never has enough.
                jobs.request_page(5, 2 + taken.len() as u64);
            }
        }
        wanted.sort_unstable();
        for page in wanted {
            assert!(taken.contains(&page), "{page:?} in {taken:?}");
        }
        let place = |number| taken.iter().position(|&(of, _)| of == number);
        assert!(place(9) < Some(taken.len() - 1), "{taken:?}");
    }

    #[test]
    fn the_rest_comes_last() {
        let jobs = JobQueue::default();
        jobs.request_page(1, 1);
        assert!(matches!(jobs.next(true), Some(Task::Page { .. })));
        assert!(matches!(jobs.next(true), Some(Task::Remaining)));
        jobs.close();
        assert!(jobs.next(true).is_none());
    }
}
