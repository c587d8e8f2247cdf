//! Processes that every pipeline drops, which are not sampled any more.
//!
//! Processors speak of a number in a profile. Whose that was is looked up in what was sent: a number
//! alone may be another process's by now, or the same one's after an exec.

use std::collections::{HashMap, VecDeque};

use profcol_component::Follower;
use profcol_ebpf_host::ProcessKey;

use super::interval::Interval;

/// How many batches a decision may come late.
const REMEMBERED: usize = 64;

pub struct Unwanted {
    follower: Option<Follower>,
    sent: VecDeque<Sent>,
}

/// The processes of a batch, by their numbers; `None` where two had the same one.
struct Sent {
    time: u64,
    processes: HashMap<u32, Option<ProcessKey>>,
}

impl Unwanted {
    pub fn new(follower: Option<Follower>) -> Self {
        Self {
            follower,
            sent: VecDeque::new(),
        }
    }

    /// The interval is about to be sent.
    pub fn remember(&mut self, seen: &Interval) {
        if self.follower.is_none() {
            return;
        }
        let mut processes = HashMap::new();
        for process in seen.processes() {
            let known = processes.entry(process.pid).or_insert(Some(process));
            if *known != Some(process) {
                *known = None;
            }
        }
        if self.sent.len() == REMEMBERED {
            self.sent.pop_front();
        }
        self.sent.push_back(Sent {
            time: seen.start.unix,
            processes,
        });
    }

    /// What all pipelines dropped since the last time.
    pub fn take(&self) -> Vec<ProcessKey> {
        let told = self.follower.as_ref().map(Follower::take);
        let told = told.unwrap_or_default().into_iter();
        told.filter_map(|sighting| {
            let sent = self.sent.iter().find(|sent| sent.time == sighting.time)?;
            *sent.processes.get(&u32::try_from(sighting.pid).ok()?)?
        })
        .collect()
    }
}

#[cfg(test)]
mod tests {
    use profcol_component::{Sighting, Unwanted as Board};
    use profcol_ebpf_host::{Frames, Sample};

    use super::*;
    use crate::ebpf_cpu::Now;

    fn key(pid: u32, exec: u32) -> ProcessKey {
        ProcessKey {
            pid,
            exec,
            ..ProcessKey::default()
        }
    }

    fn interval(unix: u64, processes: &[ProcessKey]) -> Interval {
        let mut interval = Interval::starting_at(Now {
            unix,
            ..Now::default()
        });
        for &process in processes {
            let sample = Sample {
                process,
                ..Sample::default()
            };
            interval.add(&sample, None, Frames::new(&[]), Frames::new(&[]));
        }
        interval
    }

    #[test]
    fn finds_whose_profile_was_dropped() {
        let pipeline = "profiles".parse().expect("is the name of a pipeline");
        let board = Board::default().within([pipeline]);
        let reporter = board.reporter();
        let mut unwanted = Unwanted::new(board.follow());
        let check = |unwanted: &Unwanted, time, pid, expected: &[ProcessKey]| {
            reporter.drops(Sighting { pid, time });
            assert_eq!(unwanted.take(), expected, "{pid} at {time}");
        };
        unwanted.remember(&interval(1, &[key(7, 1), key(8, 1)]));
        unwanted.remember(&interval(2, &[key(7, 1), key(7, 2)]));
        unwanted.remember(&interval(3, &[key(7, 2)]));
        check(&unwanted, 3, 7, &[key(7, 2)]);
        // Decisions may come late, and are about what it was then.
        check(&unwanted, 1, 7, &[key(7, 1)]);
        check(&unwanted, 1, 8, &[key(8, 1)]);
        // It was replaced by an exec: which of the two was it?
        check(&unwanted, 2, 7, &[]);
        // Other profiles than those sent from here.
        check(&unwanted, 2, 8, &[]);
        check(&unwanted, 4, 7, &[]);
        check(&unwanted, 1, -7, &[]);
        for time in 10..10 + REMEMBERED as u64 {
            unwanted.remember(&interval(time, &[]));
        }
        assert_eq!(unwanted.sent.len(), REMEMBERED);
        check(&unwanted, 3, 7, &[]);
    }
}
