//! Builds unwind tables and publishes them.
//!
//! A table is built in one go, but that of a giant page by page, as its pages are met: a library of a
//! hundred megabytes is mostly never run through. Of one that is, and again and again asks for pages,
//! the rest is built when nothing else waits: stack by stack it would take minutes.

use std::collections::{HashMap, VecDeque};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use profcol_ebpf_common::file::TableRef;
use profcol_ebpf_common::table::PAGE_SHIFT;
use profcol_ebpf_unwind as unwind;

use crate::arena::{Arena, NoRoom, Piece};
use crate::files::Files;
use crate::jobs::{Job, Jobs, Next};
use crate::sys;
use crate::tables::Stats;

/// The thread's niceness at a low priority: the programs that are profiled come first.
const LOW_NICE: i32 = 5;

/// Bytes of code from which on a table is built page by page.
const GIANT: u64 = 16 << 20;

/// Bytes of code after which building has taken megabytes that are not needed afterwards.
const MUCH: u64 = 1 << 20;

/// Pages of a giant that are built at once: what is next to code that runs is likely to run too.
const NEIGHBOURS: u64 = 64;

/// So often a giant is asked for pages before its rest is built too.
const ASKED_OFTEN: u32 = 4;

/// Pages of the rest that are built before it is looked what is wanted.
const REST_AT_ONCE: u64 = 256;

/// Memory that is made free for the pages of a giant.
const PAGES_ROOM: u64 = 1 << 20;

/// Giants whose files are held open.
const MOST_GIANTS: usize = 256;

/// A table that was used within this time is not taken away for another one: that would be needed
/// again at once.
const IN_USE: Duration = Duration::from_secs(10);

pub struct Builder {
    pub arena: Arena,
    pub files: Arc<Files>,
    pub jobs: Arc<Jobs>,
    pub stats: Arc<Stats>,
    pub giants: HashMap<u32, Giant>,
    /// Giants whose rest is built when there is nothing else to do.
    pub unfinished: VecDeque<u32>,
    /// Where the whole tables are, by the numbers of their files.
    pub pieces: HashMap<u32, Piece>,
    pub low_priority: bool,
}

/// A file whose table is built page by page.
pub struct Giant {
    job: Job,
    index: unwind::Index,
    pages: Piece,
    table: TableRef,
    /// How often it was asked for pages.
    asked: u32,
    /// The first page of what is left of the rest.
    rest: u64,
}

#[derive(Debug, thiserror::Error)]
enum NotBuilt {
    #[error(transparent)]
    Refused(#[from] unwind::Refused),
    #[error(transparent)]
    NoRoom(#[from] NoRoom),
}

impl Builder {
    pub fn run(mut self) {
        if self.low_priority {
            sys::lower_priority(LOW_NICE);
        }
        let jobs = Arc::clone(&self.jobs);
        let mut read = 0;
        while let Some(next) = jobs.next(!self.unfinished.is_empty()) {
            match next {
                Next::Build(job) => {
                    read += job.size();
                    self.build(*job);
                }
                Next::Page { number, page } => self.build_pages(number, page),
                Next::Evict => self.evict_surplus(),
                Next::Rest => self.build_rest(),
            }
            self.stats
                .table_bytes
                .store(self.arena.used_bytes(), Ordering::Relaxed);
            if read >= MUCH && jobs.is_idle() {
                read = 0;
                sys::give_back_memory();
            }
        }
    }

    fn build(&mut self, job: Job) {
        let built = if job.size() >= GIANT && self.giants.len() < MOST_GIANTS {
            self.begin_giant(job)
        } else {
            self.build_whole(job)
        };
        if let Err(failed) = built {
            let (job, error) = *failed;
            if matches!(error, NotBuilt::NoRoom(NoRoom::Full)) && self.make_room(job.size()) {
                // What was freed rests for a while.
                self.files.retry_later(&job.announced.file);
            } else {
                self.report(&job.path, &error);
                self.files.publish(&job.announced.file, TableRef::REFUSED);
            }
        }
    }

    fn build_whole(&mut self, job: Job) -> Result<(), Box<(Job, NotBuilt)>> {
        let table = match unwind::Table::build(&job.elf, &*job.source) {
            Ok(table) => table,
            Err(refused) => return Err(Box::new((job, refused.into()))),
        };
        let piece = match self.arena.insert(&table) {
            Ok(piece) => piece,
            Err(full) => return Err(Box::new((job, full.into()))),
        };
        let place = TableRef {
            pages: piece.start,
            first_page: table.first_page as u32,
            page_count: table.pages.len() as u32,
        };
        if !self.files.publish(&job.announced.file, place) {
            self.arena.remove(piece);
            return Ok(());
        }
        self.pieces.insert(job.announced.file.number, piece);
        Stats::count(&self.stats.built);
        tracing::debug!(
            path = job.path,
            rows = table.rows.len(),
            milliseconds = job.announced.age().as_millis(),
            "built an unwind table"
        );
        Ok(())
    }

    /// Publishes a table none of whose pages is built yet.
    fn begin_giant(&mut self, job: Job) -> Result<(), Box<(Job, NotBuilt)>> {
        let Ok(index) = unwind::Index::open(&job.elf, &*job.source) else {
            // It has no search table, as Go's have not.
            return self.build_whole(job);
        };
        let segments = &job.elf.segments;
        let first = segments
            .iter()
            .map(|segment| segment.file_offset >> PAGE_SHIFT)
            .min();
        let last = segments
            .iter()
            .map(|segment| segment.file_end().saturating_sub(1) >> PAGE_SHIFT)
            .max();
        let (Some(first), Some(last)) = (first, last) else {
            return self.build_whole(job);
        };
        let count = u32::try_from(last - first + 1).unwrap_or(u32::MAX);
        let pages = match self.arena.reserve_pages(count) {
            Ok(pages) => pages,
            Err(full) => return Err(Box::new((job, full.into()))),
        };
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
            "builds an unwind table page by page"
        );
        let number = job.announced.file.number;
        let giant = Giant {
            job,
            index,
            pages,
            table,
            asked: 0,
            rest: first,
        };
        self.giants.insert(number, giant);
        Ok(())
    }

    /// Builds the page and those around it.
    fn build_pages(&mut self, number: u32, page: u64) {
        let Some(giant) = self.giants.get_mut(&number) else {
            return;
        };
        giant.asked = giant.asked.saturating_add(1);
        if giant.asked == ASKED_OFTEN {
            self.unfinished.push_back(number);
        }
        let begin = page & !(NEIGHBOURS - 1);
        if let Err(error) = self.build_missing(number, begin..begin + NEIGHBOURS) {
            let is_full = matches!(error, NotBuilt::NoRoom(NoRoom::Full));
            if is_full && self.make_room(PAGES_ROOM) {
                return;
            }
            let Some(giant) = self.giants.get(&number) else {
                return;
            };
            let place = page.saturating_sub(giant.table.first_page.into());
            if is_full && place < giant.table.page_count.into() {
                // It is not wanted again and again.
                self.arena.give_page_up(giant.pages, place as u32);
            }
            self.report(&giant.job.path, &error);
        }
    }

    /// Builds some more pages of a giant that asked often.
    fn build_rest(&mut self) {
        let Some(&number) = self.unfinished.front() else {
            return;
        };
        let Some(giant) = self.giants.get_mut(&number) else {
            self.unfinished.pop_front();
            return;
        };
        let begin = giant.rest;
        giant.rest += REST_AT_ONCE;
        let (path, age) = (&giant.job.path, giant.job.announced.age());
        if begin >= u64::from(giant.table.first_page) + u64::from(giant.table.page_count) {
            let milliseconds = age.as_millis();
            tracing::debug!(path, milliseconds, "built the rest of an unwind table");
            self.unfinished.pop_front();
        } else if self.arena.used_bytes() > self.arena.bytes() / 4 * 3 {
            // What is left is for what is met.
            tracing::debug!(path, "leaves the rest of an unwind table until it is met");
            self.unfinished.pop_front();
        } else if let Err(error) = self.build_missing(number, begin..begin + REST_AT_ONCE) {
            tracing::debug!(number, %error, "pages of an unwind table cannot be built");
        }
    }

    /// Builds those of the pages that are not there. What cannot be built is given up, unless there is
    /// no room for it.
    fn build_missing(&mut self, number: u32, pages: Range<u64>) -> Result<(), NotBuilt> {
        let Some(giant) = self.giants.get(&number) else {
            return Ok(());
        };
        let first = u64::from(giant.table.first_page);
        let end = pages.end.min(first + u64::from(giant.table.page_count));
        let index = giant.pages;
        let is_missing = |arena: &Arena, page: &u64| !arena.has_page(index, (*page - first) as u32);
        let mut missing =
            (pages.start.max(first)..end).filter(|page| is_missing(&self.arena, page));
        let Some(begin) = missing.next() else {
            return Ok(());
        };
        let count = missing.next_back().map_or(1, |last| last - begin + 1);
        let built = giant.index.pages(&*giant.job.source, begin, count);
        let place = (begin - first) as u32;
        let error = match built {
            Ok(table) => match self.arena.insert_pages(index, place, &table) {
                Ok(()) => return Ok(()),
                Err(NoRoom::Full) => return Err(NoRoom::Full.into()),
                Err(error) => error.into(),
            },
            Err(_) if count > 1 => {
                // What is wrong with one of them is not wrong with all.
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
                self.arena.give_page_up(index, (page - first) as u32);
            }
        }
        Err(error)
    }

    /// Frees about the memory that a table for this much code takes, of tables that nobody uses.
    /// False where there is none.
    fn make_room(&mut self, code_bytes: u64) -> bool {
        if self.arena.resting_bytes() >= code_bytes {
            return true;
        }
        let before = self.arena.used_bytes();
        let files = Arc::clone(&self.files);
        files.evict(IN_USE, |number| {
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
        if let Some(piece) = self.pieces.remove(&number) {
            self.arena.remove(piece);
        }
        if let Some(giant) = self.giants.remove(&number) {
            self.arena.remove_pages(giant.pages);
        }
    }

    fn report(&self, path: &str, error: &NotBuilt) {
        match error {
            NotBuilt::Refused(refused) => {
                Stats::count(&self.stats.refused);
                tracing::debug!(path, error = %refused, "an executable has no unwind table");
            }
            NotBuilt::NoRoom(full) => {
                Stats::count(&self.stats.no_room);
                tracing::warn!(path, error = %full, "An executable gets no unwind table. Raise `max_table_memory_mib`.");
            }
        }
    }
}
