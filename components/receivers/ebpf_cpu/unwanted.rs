//! Processes that every pipeline drops, which are not sampled any more.
//!
//! Processors speak of a number in a profile. Whose that was is looked up in what was sent: a number
//! alone may be another process's by now, or the same one's after an exec.

use std::collections::{HashMap, VecDeque};

use profcol_component::{DropExpiry, DropSubscription, SampledProcess};
use profcol_ebpf_loader::ProcessKey;

use super::interval::Interval;

/// How many batches a decision may come late.
const REMEMBERED: usize = 64;
/// Processes that are left out for a while: as many as the programs know of processes. Those for
/// which there is no room are sampled, and dropped by the pipelines.
const RESTING: usize = 8192;

pub struct Unwanted {
    follower: Option<DropSubscription>,
    sent: VecDeque<Sent>,
    /// Until when.
    resting: Vec<(u64, ProcessKey)>,
}

/// The processes of a batch, by their numbers; `None` where two had the same one.
struct Sent {
    time: u64,
    processes: HashMap<u32, Option<ProcessKey>>,
}

impl Unwanted {
    pub fn new(follower: Option<DropSubscription>) -> Self {
        Self {
            follower,
            sent: VecDeque::new(),
            resting: Vec::new(),
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

    /// What all pipelines dropped since the last time. `now` is in nanoseconds of Unix time.
    pub fn take(&mut self, now: u64) -> Vec<ProcessKey> {
        let told = self.follower.as_ref().map(DropSubscription::take);
        let mut processes = Vec::new();
        for dropped in told.unwrap_or_default() {
            let Some(process) = self.process(dropped.sighting) else {
                continue;
            };
            match dropped.until {
                DropExpiry::ProcessEnd => processes.push(process),
                DropExpiry::Time(time) if time > now && self.resting.len() < RESTING => {
                    self.resting.push((time, process));
                    processes.push(process);
                }
                DropExpiry::Time(_) => {}
            }
        }
        processes
    }

    /// Those that are to be sampled again.
    pub fn rested(&mut self, now: u64) -> Vec<ProcessKey> {
        let rested = self.resting.extract_if(.., |(until, _)| *until <= now);
        rested.map(|(_, process)| process).collect()
    }

    fn process(&self, sighting: SampledProcess) -> Option<ProcessKey> {
        let sent = self.sent.iter().find(|sent| sent.time == sighting.time)?;
        *sent.processes.get(&u32::try_from(sighting.pid).ok()?)?
    }
}

#[cfg(test)]
mod tests {
    use profcol_component::{DropFeedback as Board, DropReporter};
    use profcol_ebpf_loader::{Frames, Sample};

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

    fn followed() -> (DropReporter, Unwanted) {
        let pipeline = "profiles".parse().expect("is the name of a pipeline");
        let board = Board::default().within([pipeline]);
        (board.reporter(), Unwanted::new(board.subscribe()))
    }

    #[test]
    fn finds_whose_profile_was_dropped() {
        let (reporter, mut unwanted) = followed();
        let check = |unwanted: &mut Unwanted, time, pid, expected: &[ProcessKey]| {
            reporter.report_drop(SampledProcess { pid, time });
            assert_eq!(unwanted.take(0), expected, "{pid} at {time}");
        };
        unwanted.remember(&interval(1, &[key(7, 1), key(8, 1)]));
        unwanted.remember(&interval(2, &[key(7, 1), key(7, 2)]));
        unwanted.remember(&interval(3, &[key(7, 2)]));
        check(&mut unwanted, 3, 7, &[key(7, 2)]);
        // Decisions may come late, and are about what it was then.
        check(&mut unwanted, 1, 7, &[key(7, 1)]);
        check(&mut unwanted, 1, 8, &[key(8, 1)]);
        // It was replaced by an exec: which of the two was it?
        check(&mut unwanted, 2, 7, &[]);
        // Other profiles than those sent from here.
        check(&mut unwanted, 2, 8, &[]);
        check(&mut unwanted, 4, 7, &[]);
        check(&mut unwanted, 1, -7, &[]);
        for time in 10..10 + REMEMBERED as u64 {
            unwanted.remember(&interval(time, &[]));
        }
        assert_eq!(unwanted.sent.len(), REMEMBERED);
        check(&mut unwanted, 3, 7, &[]);
    }

    #[test]
    fn those_that_rest_come_back() {
        let (reporter, mut unwanted) = followed();
        unwanted.remember(&interval(1, &[key(7, 1), key(8, 1), key(9, 1)]));
        for (pid, until) in [(7, 30), (8, 20), (9, 10)] {
            let sighting = SampledProcess { pid, time: 1 };
            reporter.report_drop_until(sighting, DropExpiry::Time(until));
        }
        // What is over already is not left out.
        assert_eq!(unwanted.take(10), [key(7, 1), key(8, 1)]);
        assert_eq!(unwanted.rested(19), []);
        assert_eq!(unwanted.rested(20), [key(8, 1)]);
        assert_eq!(unwanted.rested(100), [key(7, 1)]);
        assert_eq!(unwanted.rested(100), []);
    }
}
