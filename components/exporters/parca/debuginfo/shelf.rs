//! Executables that wait for their upload, each of them open: which is next, and which is dropped
//! when there are too many.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use profcol_component::Executable;
use tokio::time::Instant;

/// How long somebody else's upload is left alone.
const IN_PROGRESS: Duration = Duration::from_secs(5 * 60);
/// An upload that broke is in progress for the server until it is stale, after 15 minutes and 2.
const STALE: Duration = Duration::from_secs(17 * 60 + 10);
/// Uploads of one file that may break.
const MOST_BREAKS: u32 = 2;
/// Build ids of which it is known that nobody offered their file.
const MOST_MISSING: usize = 4096;

pub struct Shelf {
    held: HashMap<String, Held>,
    missing: HashSet<String>,
    most: usize,
    came: u64,
}

struct Held {
    executable: Executable,
    samples: u64,
    came: u64,
    not_before: Option<Instant>,
    breaks: u32,
    is_taken: bool,
}

/// How to go on with an executable after a try.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    Done,
    /// Another agent is at it.
    Later,
    /// Our upload did not come to its end.
    Again,
    /// The server could not be asked.
    Untried,
}

/// What is known of the file of a build id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum File {
    Waits,
    /// Nobody offered it, which is news.
    Missing,
    KnownToBeMissing,
}

impl Shelf {
    pub fn new(most: usize) -> Self {
        Self {
            held: HashMap::new(),
            missing: HashSet::new(),
            most,
            came: 0,
        }
    }

    pub fn len(&self) -> usize {
        self.held.len()
    }

    /// True where another one had to be dropped for it.
    pub fn add(&mut self, executable: Executable) -> bool {
        let build_id = executable.build_id.text();
        if self.held.contains_key(build_id) {
            return false;
        }
        self.missing.remove(build_id);
        let is_full = self.held.len() >= self.most;
        if is_full {
            let waiting = self.held.iter().filter(|(_, held)| !held.is_taken);
            let coldest = waiting.min_by_key(|(_, held)| (held.samples, held.came));
            if let Some(coldest) = coldest.map(|(build_id, _)| build_id.clone()) {
                self.held.remove(&coldest);
            }
        }
        self.came += 1;
        let held = Held {
            samples: 0,
            came: self.came,
            not_before: None,
            breaks: 0,
            is_taken: false,
            executable,
        };
        let build_id = held.executable.build_id.text().to_owned();
        self.held.insert(build_id, held);
        is_full
    }

    pub fn file(&mut self, build_id: &str) -> File {
        if self.held.contains_key(build_id) {
            return File::Waits;
        }
        if self.missing.contains(build_id) {
            return File::KnownToBeMissing;
        }
        if self.missing.len() >= MOST_MISSING {
            self.missing.clear();
        }
        self.missing.insert(build_id.to_owned());
        File::Missing
    }

    /// So many more samples met it.
    pub fn weigh(&mut self, build_id: &str, samples: u64) {
        if let Some(held) = self.held.get_mut(build_id) {
            held.samples = held.samples.saturating_add(samples);
        }
    }

    /// The one with the most samples; what no sample that came by here met is of no use.
    pub fn take(&mut self, now: Instant) -> Option<Executable> {
        let is_due = |held: &Held| held.not_before.is_none_or(|due| due <= now);
        let ready = self.held.values_mut();
        let ready = ready.filter(|held| !held.is_taken && held.samples > 0 && is_due(held));
        let hottest = ready.max_by_key(|held| (held.samples, std::cmp::Reverse(held.came)))?;
        hottest.is_taken = true;
        Some(hottest.executable.clone())
    }

    /// When [`take`](Self::take) may have something that it has not now.
    pub fn next_due(&self) -> Option<Instant> {
        let waiting = self.held.values();
        let waiting = waiting.filter(|held| !held.is_taken && held.samples > 0);
        waiting.filter_map(|held| held.not_before).min()
    }

    /// What was taken is done with, or waits again. False where it is given up.
    pub fn put_back(&mut self, build_id: &str, next: Next, now: Instant) -> bool {
        let Some(held) = self.held.get_mut(build_id) else {
            return true;
        };
        held.is_taken = false;
        held.not_before = match next {
            Next::Done => None,
            Next::Later => Some(now + IN_PROGRESS),
            Next::Again => Some(now + STALE),
            Next::Untried => None,
        };
        held.breaks += u32::from(next == Next::Again);
        let is_given_up = held.breaks >= MOST_BREAKS;
        if next == Next::Done || is_given_up {
            self.held.remove(build_id);
        }
        !is_given_up
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use profcol_component::BuildId;

    use super::*;

    fn executable(build_id: &str) -> Executable {
        Executable {
            build_id: BuildId::Gnu(build_id.into()),
            hash: String::new(),
            path: "/bin/true".into(),
            pid: 1,
            file: Arc::new(std::fs::File::open("/dev/null").unwrap()),
        }
    }

    fn shelf(most: usize, samples: &[(&str, u64)]) -> Shelf {
        let mut shelf = Shelf::new(most);
        for &(build_id, samples) in samples {
            shelf.add(executable(build_id));
            shelf.weigh(build_id, samples);
        }
        shelf
    }

    fn take(shelf: &mut Shelf, now: Instant) -> Option<String> {
        let taken = shelf.take(now)?;
        Some(taken.build_id.text().to_owned())
    }

    #[test]
    fn the_hottest_goes_first() {
        let now = Instant::now();
        let mut shelf = shelf(9, &[("a", 1), ("unseen", 0), ("b", 3), ("c", 3)]);
        shelf.weigh("a", 9);
        shelf.weigh("unknown", 99);
        let taken: Vec<_> = std::iter::from_fn(|| take(&mut shelf, now)).collect();
        assert_eq!(taken, ["a", "b", "c"]);
    }

    #[test]
    fn what_few_samples_met_is_dropped_first() {
        let now = Instant::now();
        let mut shelf = shelf(3, &[("a", 1), ("b", 0), ("c", 2)]);
        assert_eq!(take(&mut shelf, now).as_deref(), Some("c"));
        assert!(shelf.add(executable("d")), "b has to go");
        assert!(!shelf.add(executable("d")), "it is there");
        assert_eq!(shelf.file("b"), File::Missing);
        assert_eq!(shelf.file("b"), File::KnownToBeMissing);
        assert!(shelf.add(executable("e")), "d has to go");
        assert_eq!(shelf.len(), 3);
        for build_id in ["a", "c", "e"] {
            assert_eq!(shelf.file(build_id), File::Waits, "{build_id}");
        }
    }

    #[test]
    fn each_outcome_has_its_wait() {
        let check = |next, again_after: Option<Duration>| {
            let now = Instant::now();
            let mut shelf = shelf(9, &[("a", 1)]);
            take(&mut shelf, now).unwrap();
            assert_eq!(shelf.next_due(), None, "it is taken");
            assert!(shelf.put_back("a", next, now));
            let Some(after) = again_after else {
                assert_eq!(shelf.len(), 0);
                return;
            };
            if !after.is_zero() {
                assert_eq!(take(&mut shelf, now), None);
                assert_eq!(shelf.next_due(), Some(now + after));
            }
            assert_eq!(take(&mut shelf, now + after).as_deref(), Some("a"));
        };
        check(Next::Done, None);
        check(Next::Later, Some(IN_PROGRESS));
        check(Next::Again, Some(STALE));
        check(Next::Untried, Some(Duration::ZERO));
    }

    #[test]
    fn an_upload_that_breaks_again_and_again_is_given_up() {
        let mut now = Instant::now();
        let mut shelf = shelf(9, &[("a", 1)]);
        for round in 1..=MOST_BREAKS {
            take(&mut shelf, now).unwrap();
            assert_eq!(shelf.put_back("a", Next::Again, now), round < MOST_BREAKS);
            now += STALE;
        }
        assert_eq!(shelf.len(), 0);
    }
}
