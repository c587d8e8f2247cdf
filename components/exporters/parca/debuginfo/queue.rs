//! Executables queued for upload, each with its open file: selects the next one, and the one to drop
//! at the limit.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use profcol_component::Executable;
use tokio::time::Instant;

/// How long to wait for an upload by another agent.
const IN_PROGRESS: Duration = Duration::from_secs(5 * 60);
/// An interrupted upload stays in progress for the server until it is stale, after 15 minutes and 2.
const STALE: Duration = Duration::from_secs(17 * 60 + 10);
/// Maximum number of interrupted uploads per file.
const MAX_INTERRUPTED_UPLOADS: u32 = 2;
/// Maximum number of build IDs remembered as missing.
const MAX_MISSING: usize = 4096;

pub struct UploadQueue {
    queued: HashMap<String, QueuedExecutable>,
    missing: HashSet<String>,
    capacity: usize,
    sequence: u64,
}

struct QueuedExecutable {
    executable: Executable,
    samples: u64,
    sequence: u64,
    not_before: Option<Instant>,
    interruptions: u32,
    is_uploading: bool,
}

/// What to do with an executable after an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Disposition {
    Done,
    /// Another agent is uploading it.
    Later,
    /// Our upload was interrupted.
    Again,
    /// The server was unavailable.
    Untried,
}

/// The state of the file of a build ID.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum File {
    Waits,
    /// No receiver offered the file; reported once.
    Missing,
    KnownToBeMissing,
}

impl UploadQueue {
    pub fn new(capacity: usize) -> Self {
        Self {
            queued: HashMap::new(),
            missing: HashSet::new(),
            capacity,
            sequence: 0,
        }
    }

    pub fn len(&self) -> usize {
        self.queued.len()
    }

    /// Returns true if another one was dropped for it.
    pub fn add(&mut self, executable: Executable) -> bool {
        let build_id = executable.build_id.text();
        if self.queued.contains_key(build_id) {
            return false;
        }
        self.missing.remove(build_id);
        let is_full = self.queued.len() >= self.capacity;
        if is_full {
            let waiting = self
                .queued
                .iter()
                .filter(|(_, queued)| !queued.is_uploading);
            let coldest = waiting.min_by_key(|(_, queued)| (queued.samples, queued.sequence));
            if let Some(coldest) = coldest.map(|(build_id, _)| build_id.clone()) {
                self.queued.remove(&coldest);
            }
        }
        self.sequence += 1;
        let queued = QueuedExecutable {
            samples: 0,
            sequence: self.sequence,
            not_before: None,
            interruptions: 0,
            is_uploading: false,
            executable,
        };
        let build_id = queued.executable.build_id.text().to_owned();
        self.queued.insert(build_id, queued);
        is_full
    }

    /// Drops the others, unless they are being uploaded.
    pub fn retain(&mut self, is_needed: impl Fn(&str) -> bool) {
        self.queued
            .retain(|build_id, queued| queued.is_uploading || is_needed(build_id));
    }

    pub fn file(&mut self, build_id: &str) -> File {
        if self.queued.contains_key(build_id) {
            return File::Waits;
        }
        if self.missing.contains(build_id) {
            return File::KnownToBeMissing;
        }
        if self.missing.len() >= MAX_MISSING {
            self.missing.clear();
        }
        self.missing.insert(build_id.to_owned());
        File::Missing
    }

    /// Adds samples of this executable.
    pub fn add_samples(&mut self, build_id: &str, samples: u64) {
        if let Some(queued) = self.queued.get_mut(build_id) {
            queued.samples = queued.samples.saturating_add(samples);
        }
    }

    /// The executable with the most samples; those without exported samples are not uploaded.
    pub fn take(&mut self, now: Instant) -> Option<Executable> {
        let is_due = |queued: &QueuedExecutable| queued.not_before.is_none_or(|due| due <= now);
        let ready = self.queued.values_mut();
        let ready =
            ready.filter(|queued| !queued.is_uploading && queued.samples > 0 && is_due(queued));
        let hottest =
            ready.max_by_key(|queued| (queued.samples, std::cmp::Reverse(queued.sequence)))?;
        hottest.is_uploading = true;
        Some(hottest.executable.clone())
    }

    /// When [`take`](Self::take) may next return an executable.
    pub fn next_due(&self) -> Option<Instant> {
        let waiting = self.queued.values();
        let waiting = waiting.filter(|queued| !queued.is_uploading && queued.samples > 0);
        waiting.filter_map(|queued| queued.not_before).min()
    }

    /// Finishes an executable, or queues it again. Returns false if it is given up.
    pub fn put_back(&mut self, build_id: &str, next: Disposition, now: Instant) -> bool {
        let Some(queued) = self.queued.get_mut(build_id) else {
            return true;
        };
        queued.is_uploading = false;
        queued.not_before = match next {
            Disposition::Done => None,
            Disposition::Later => Some(now + IN_PROGRESS),
            Disposition::Again => Some(now + STALE),
            Disposition::Untried => None,
        };
        queued.interruptions += u32::from(next == Disposition::Again);
        let is_given_up = queued.interruptions >= MAX_INTERRUPTED_UPLOADS;
        if next == Disposition::Done || is_given_up {
            self.queued.remove(build_id);
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

    fn queue(capacity: usize, samples: &[(&str, u64)]) -> UploadQueue {
        let mut queue = UploadQueue::new(capacity);
        for &(build_id, samples) in samples {
            queue.add(executable(build_id));
            queue.add_samples(build_id, samples);
        }
        queue
    }

    fn take(queue: &mut UploadQueue, now: Instant) -> Option<String> {
        let taken = queue.take(now)?;
        Some(taken.build_id.text().to_owned())
    }

    #[test]
    fn the_hottest_goes_first() {
        let now = Instant::now();
        let mut queue = queue(9, &[("a", 1), ("unseen", 0), ("b", 3), ("c", 3)]);
        queue.add_samples("a", 9);
        queue.add_samples("unknown", 99);
        let taken: Vec<_> = std::iter::from_fn(|| take(&mut queue, now)).collect();
        assert_eq!(taken, ["a", "b", "c"]);
    }

    #[test]
    fn the_executable_with_the_fewest_samples_is_dropped_first() {
        let now = Instant::now();
        let mut queue = queue(3, &[("a", 1), ("b", 0), ("c", 2)]);
        assert_eq!(take(&mut queue, now).as_deref(), Some("c"));
        assert!(queue.add(executable("d")), "drops b");
        assert!(!queue.add(executable("d")), "already queued");
        assert_eq!(queue.file("b"), File::Missing);
        assert_eq!(queue.file("b"), File::KnownToBeMissing);
        assert!(queue.add(executable("e")), "drops d");
        assert_eq!(queue.len(), 3);
        for build_id in ["a", "c", "e"] {
            assert_eq!(queue.file(build_id), File::Waits, "{build_id}");
        }
    }

    #[test]
    fn only_needed_executables_are_retained() {
        let now = Instant::now();
        let mut queue = queue(9, &[("a", 1), ("b", 2), ("c", 3)]);
        assert_eq!(take(&mut queue, now).as_deref(), Some("c"));
        queue.retain(|build_id| build_id == "a");
        assert_eq!(queue.len(), 2);
        assert_eq!(take(&mut queue, now).as_deref(), Some("a"));
        assert_eq!(take(&mut queue, now), None);
    }

    #[test]
    fn each_outcome_has_its_delay() {
        let check = |next, again_after: Option<Duration>| {
            let now = Instant::now();
            let mut queue = queue(9, &[("a", 1)]);
            take(&mut queue, now).unwrap();
            assert_eq!(queue.next_due(), None, "taken");
            assert!(queue.put_back("a", next, now));
            let Some(after) = again_after else {
                assert_eq!(queue.len(), 0);
                return;
            };
            if !after.is_zero() {
                assert_eq!(take(&mut queue, now), None);
                assert_eq!(queue.next_due(), Some(now + after));
            }
            assert_eq!(take(&mut queue, now + after).as_deref(), Some("a"));
        };
        check(Disposition::Done, None);
        check(Disposition::Later, Some(IN_PROGRESS));
        check(Disposition::Again, Some(STALE));
        check(Disposition::Untried, Some(Duration::ZERO));
    }

    #[test]
    fn a_repeatedly_interrupted_upload_is_given_up() {
        let mut now = Instant::now();
        let mut queue = queue(9, &[("a", 1)]);
        for round in 1..=MAX_INTERRUPTED_UPLOADS {
            take(&mut queue, now).unwrap();
            assert_eq!(
                queue.put_back("a", Disposition::Again, now),
                round < MAX_INTERRUPTED_UPLOADS
            );
            now += STALE;
        }
        assert_eq!(queue.len(), 0);
    }
}
