//! What waits for the thread that builds unwind tables.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use profcol_ebpf_unwind as unwind;

use crate::files::Announced;

/// Files that wait, each open. One that finds no room is announced again by a later sample.
const MOST_FILES: usize = 512;
/// Pages that are wanted. One that finds no room is wanted again by a later sample.
const MOST_PAGES: usize = 4096;

/// A file whose table is to be built.
pub struct Job {
    pub announced: Announced,
    pub path: String,
    pub source: Box<dyn unwind::Source + Send>,
    pub elf: unwind::Executable,
}

/// What to do next.
pub enum Next {
    Build(Box<Job>),
    /// There are too many files.
    Evict,
    /// A page of a file that is built page by page.
    Page {
        number: u32,
        page: u64,
    },
}

/// The smallest file is built first: most stacks need small ones, and a large one would hold up all
/// others.
#[derive(Default)]
pub struct Jobs {
    waiting: Mutex<Waiting>,
    changed: Condvar,
}

#[derive(Default)]
struct Waiting {
    /// By size, and then in the order in which they came.
    files: BTreeMap<(u64, u64), Job>,
    pages: BTreeSet<(u32, u64)>,
    came: u64,
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

impl Jobs {
    /// Gives the job back where there is no room.
    pub fn add(&self, job: Job) -> Result<(), Box<Job>> {
        let mut waiting = self.lock();
        if waiting.files.len() >= MOST_FILES {
            return Err(Box::new(job));
        }
        waiting.came += 1;
        let place = (job.size(), waiting.came);
        waiting.files.insert(place, job);
        self.changed.notify_one();
        Ok(())
    }

    pub fn want(&self, number: u32, page: u64) {
        let mut waiting = self.lock();
        if waiting.pages.len() < MOST_PAGES && waiting.pages.insert((number, page)) {
            self.changed.notify_one();
        }
    }

    pub fn evict(&self) {
        self.lock().evict = true;
        self.changed.notify_one();
    }

    pub fn is_idle(&self) -> bool {
        let waiting = self.lock();
        waiting.files.is_empty() && waiting.pages.is_empty()
    }

    /// Nothing comes any more.
    pub fn close(&self) {
        self.lock().closed = true;
        self.changed.notify_all();
    }

    /// Waits for something to do; none at the end. What still waits then is not needed any more.
    pub fn next(&self) -> Option<Next> {
        let mut waiting = self.lock();
        loop {
            if waiting.closed {
                return None;
            }
            if std::mem::take(&mut waiting.evict) {
                return Some(Next::Evict);
            }
            // Files first: there is an end to them, while giants want pages for as long as they run.
            if let Some((_, job)) = waiting.files.pop_first() {
                return Some(Next::Build(Box::new(job)));
            }
            if let Some((number, page)) = waiting.pages.pop_first() {
                return Some(Next::Page { number, page });
            }
            waiting = self
                .changed
                .wait(waiting)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
