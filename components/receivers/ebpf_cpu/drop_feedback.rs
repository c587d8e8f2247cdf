//! Drop feedback: excludes processes whose samples are dropped by all pipelines.
//!
//! Processors report a PID in a profile. It is looked up in the sent batches, since the PID may have been reused
//! or the process may have exec'd in the meantime.

use std::collections::{HashMap, VecDeque};

use profcol_component::{DropExpiry, DropSubscription, SampledProcess};
use profcol_ebpf_loader::ProcessKey;

use super::interval::Interval;

/// Feedback may refer to this many past batches.
const MAX_SENT_BATCHES: usize = 64;
/// Maximum number of temporarily excluded processes: the size of the programs' map. Beyond it processes
/// are sampled, and dropped by the pipelines.
const MAX_SUSPENDED: usize = 8192;
/// Maximum number of excluded processes that a reload includes again, the size of the same map.
const MAX_EXCLUDED: usize = 8192;

pub struct DroppedProcesses {
    follower: DropSubscription,
    sent: VecDeque<Sent>,
    /// When each suspension expires.
    suspended: Vec<(u64, ProcessKey)>,
    /// Processes excluded until they end, the oldest first.
    excluded: VecDeque<ProcessKey>,
}

/// The processes of a batch by PID; `None` if two share one.
struct Sent {
    time: u64,
    processes: HashMap<u32, Option<ProcessKey>>,
}

impl DroppedProcesses {
    pub fn new(follower: DropSubscription) -> Self {
        Self {
            follower,
            sent: VecDeque::new(),
            suspended: Vec::new(),
            excluded: VecDeque::new(),
        }
    }

    /// Remembers the processes of an interval that is about to be sent.
    pub fn remember(&mut self, seen: &Interval) {
        if !self.follower.is_active() {
            return;
        }
        let mut processes = HashMap::new();
        for process in seen.processes() {
            let known = processes.entry(process.pid).or_insert(Some(process));
            if *known != Some(process) {
                *known = None;
            }
        }
        if self.sent.len() == MAX_SENT_BATCHES {
            self.sent.pop_front();
        }
        self.sent.push_back(Sent {
            time: seen.start.unix,
            processes,
        });
    }

    /// Processes that all pipelines dropped since the last call. `now` is Unix time in nanoseconds.
    pub fn take(&mut self, now: u64) -> Vec<ProcessKey> {
        let mut processes = Vec::new();
        for dropped in self.follower.take() {
            let Some(process) = self.process(dropped.process) else {
                continue;
            };
            match dropped.until {
                DropExpiry::ProcessEnd => {
                    if self.excluded.len() == MAX_EXCLUDED {
                        self.excluded.pop_front();
                    }
                    self.excluded.push_back(process);
                    processes.push(process);
                }
                DropExpiry::Time(time) if time > now && self.suspended.len() < MAX_SUSPENDED => {
                    self.suspended.push((time, process));
                    processes.push(process);
                }
                DropExpiry::Time(_) => {}
            }
        }
        processes
    }

    /// Processes to sample again: all of them if a reload changed the pipelines.
    pub fn expired(&mut self, now: u64) -> Vec<ProcessKey> {
        if self.follower.take_change() {
            let suspended = self.suspended.drain(..).map(|(_, process)| process);
            return suspended.chain(self.excluded.drain(..)).collect();
        }
        let expired = self.suspended.extract_if(.., |(until, _)| *until <= now);
        expired.map(|(_, process)| process).collect()
    }

    fn process(&self, process: SampledProcess) -> Option<ProcessKey> {
        let sent = self.sent.iter().find(|sent| sent.time == process.time)?;
        *sent.processes.get(&u32::try_from(process.pid).ok()?)?
    }
}

#[cfg(test)]
mod tests {
    use profcol_component::testkit::context;
    use profcol_component::{BuildContext, DropFeedback, DropReporter};
    use profcol_ebpf_loader::{Sample, StackFrames};

    use super::*;
    use crate::ebpf_cpu::Timestamps;

    fn key(pid: u32, exec: u32) -> ProcessKey {
        ProcessKey {
            pid,
            exec,
            ..ProcessKey::default()
        }
    }

    fn interval(unix: u64, processes: &[ProcessKey]) -> Interval {
        let mut interval = Interval::starting_at(Timestamps {
            unix,
            ..Timestamps::default()
        });
        for &process in processes {
            let sample = Sample {
                process,
                ..Sample::default()
            };
            interval.add(
                &sample,
                None,
                StackFrames::new(&[]),
                StackFrames::new(&[]),
                &[],
            );
        }
        interval
    }

    fn followed() -> (DropReporter, DroppedProcesses) {
        let pipeline = "profiles".parse().expect("valid pipeline name");
        let feedback = DropFeedback::of(&BuildContext {
            pipelines: [pipeline].into(),
            ..context("ebpf_cpu")
        });
        let reporter = feedback.reporter();
        (reporter, DroppedProcesses::new(feedback.subscribe()))
    }

    #[test]
    fn finds_the_process_of_a_dropped_profile() {
        let (reporter, mut drop_feedback) = followed();
        let check = |drop_feedback: &mut DroppedProcesses, time, pid, expected: &[ProcessKey]| {
            reporter.report_drop(SampledProcess { pid, time });
            assert_eq!(drop_feedback.take(0), expected, "{pid} at {time}");
        };
        drop_feedback.remember(&interval(1, &[key(7, 1), key(8, 1)]));
        drop_feedback.remember(&interval(2, &[key(7, 1), key(7, 2)]));
        drop_feedback.remember(&interval(3, &[key(7, 2)]));
        check(&mut drop_feedback, 3, 7, &[key(7, 2)]);
        // Decisions may arrive late; they refer to the process at that time.
        check(&mut drop_feedback, 1, 7, &[key(7, 1)]);
        check(&mut drop_feedback, 1, 8, &[key(8, 1)]);
        // Replaced by an exec: ambiguous.
        check(&mut drop_feedback, 2, 7, &[]);
        // A profile that was not sent from here.
        check(&mut drop_feedback, 2, 8, &[]);
        check(&mut drop_feedback, 4, 7, &[]);
        check(&mut drop_feedback, 1, -7, &[]);
        for time in 10..10 + MAX_SENT_BATCHES as u64 {
            drop_feedback.remember(&interval(time, &[]));
        }
        assert_eq!(drop_feedback.sent.len(), MAX_SENT_BATCHES);
        check(&mut drop_feedback, 3, 7, &[]);
    }

    #[test]
    fn suspended_processes_are_sampled_again() {
        let (reporter, mut drop_feedback) = followed();
        drop_feedback.remember(&interval(1, &[key(7, 1), key(8, 1), key(9, 1)]));
        for (pid, until) in [(7, 30), (8, 20), (9, 10)] {
            let process = SampledProcess { pid, time: 1 };
            reporter.report_drop_until(process, DropExpiry::Time(until));
        }
        // An expired suspension does not prevent a new one.
        assert_eq!(drop_feedback.take(10), [key(7, 1), key(8, 1)]);
        assert_eq!(drop_feedback.expired(19), []);
        assert_eq!(drop_feedback.expired(20), [key(8, 1)]);
        assert_eq!(drop_feedback.expired(100), [key(7, 1)]);
        assert_eq!(drop_feedback.expired(100), []);
    }
}
