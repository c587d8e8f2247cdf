//! Feedback about dropped processes, from processors to the receiver that samples them, so that it
//! can stop sampling them.
//!
//! A processor reports each process that it drops entirely. Once all pipelines of a receiver
//! dropped it, the receiver is notified. A [`SampledProcess`] identifies a process within one
//! profile, so that the decision does not apply to a later process with the same PID, or to the
//! same process after an exec.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::Arc;

use parking_lot::Mutex;
use profcol_config::PipelineId;

use crate::BuildContext;

/// Entries per receiver. The oldest are evicted; their processes are sampled once more.
const MAX_TRACKED_PROCESSES: usize = 4096;

/// One process in one profile of one receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SampledProcess {
    /// The resource's `process.pid`.
    pub pid: i64,
    /// The profile's `time_unix_nano`, unique per interval of a receiver.
    pub time: u64,
}

/// A process that all pipelines of a receiver drop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DroppedProcess {
    pub process: SampledProcess,
    pub until: DropExpiry,
}

/// How long a process stays dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum DropExpiry {
    /// Until this time, in nanoseconds since the Unix epoch.
    Time(u64),
    /// Until the process exits or calls exec.
    ProcessEnd,
}

/// Handle of a component: the shared state, and the pipelines that it belongs to or feeds.
#[derive(Clone, Debug, Default)]
pub struct DropFeedback {
    state: Arc<Mutex<FeedbackState>>,
    pipelines: Arc<[PipelineId]>,
}

/// Reports the processes that a processor drops.
#[derive(Clone, Debug)]
pub struct DropReporter(DropFeedback);

/// Receives the processes that all pipelines of a receiver drop.
#[derive(Debug)]
pub struct DropSubscription {
    state: Arc<Mutex<FeedbackState>>,
    index: usize,
}

#[derive(Debug, Default)]
struct FeedbackState {
    /// Pipelines with a processor that may drop processes.
    reporting: BTreeSet<PipelineId>,
    receivers: Vec<ReceiverFeedback>,
}

#[derive(Debug)]
struct ReceiverFeedback {
    pipelines: Arc<[PipelineId]>,
    /// The pipelines that have dropped the process so far.
    dropped_by: HashMap<SampledProcess, BTreeMap<PipelineId, DropExpiry>>,
    /// In order of the first drop.
    order: VecDeque<SampledProcess>,
    confirmed: VecDeque<DroppedProcess>,
}

impl DropFeedback {
    /// The handle of a component.
    pub fn of(context: &BuildContext) -> Self {
        let feedback = context.shared.get::<Self>();
        feedback.within(context.pipelines.iter().cloned())
    }

    /// A handle for a component in these pipelines.
    fn within(&self, pipelines: impl IntoIterator<Item = PipelineId>) -> Self {
        Self {
            state: Arc::clone(&self.state),
            pipelines: pipelines.into_iter().collect(),
        }
    }

    /// For processors, at build time.
    pub fn reporter(&self) -> DropReporter {
        self.state
            .lock()
            .reporting
            .extend(self.pipelines.iter().cloned());
        DropReporter(self.clone())
    }

    /// For receivers, at build time, after all processors. `None` if a pipeline drops nothing.
    pub fn subscribe(&self) -> Option<DropSubscription> {
        let mut state = self.state.lock();
        let may_drop = |pipeline| state.reporting.contains(pipeline);
        if self.pipelines.is_empty() || !self.pipelines.iter().all(may_drop) {
            return None;
        }
        state.receivers.push(ReceiverFeedback {
            pipelines: Arc::clone(&self.pipelines),
            dropped_by: HashMap::new(),
            order: VecDeque::new(),
            confirmed: VecDeque::new(),
        });
        Some(DropSubscription {
            state: Arc::clone(&self.state),
            index: state.receivers.len() - 1,
        })
    }
}

impl DropReporter {
    /// All samples of this process are dropped until it exits or calls exec.
    pub fn report_drop(&self, process: SampledProcess) {
        self.report_drop_until(process, DropExpiry::ProcessEnd);
    }

    /// All samples of this process are dropped until `until`.
    pub fn report_drop_until(&self, process: SampledProcess, until: DropExpiry) {
        let mut state = self.0.state.lock();
        for receivers in &mut state.receivers {
            for pipeline in &*self.0.pipelines {
                receivers.record_drop(pipeline, process, until);
            }
        }
    }
}

impl DropSubscription {
    /// Processes that all pipelines dropped since the last call.
    pub fn take(&self) -> Vec<DroppedProcess> {
        let mut state = self.state.lock();
        let receivers = state.receivers.get_mut(self.index);
        receivers.map_or_else(Vec::new, |receivers| {
            receivers.confirmed.drain(..).collect()
        })
    }
}

impl ReceiverFeedback {
    fn record_drop(&mut self, pipeline: &PipelineId, process: SampledProcess, until: DropExpiry) {
        if !self.pipelines.contains(pipeline) {
            return;
        }
        let dropped_by = self.dropped_by.entry(process).or_insert_with(|| {
            self.order.push_back(process);
            BTreeMap::new()
        });
        let is_new = dropped_by.insert(pipeline.clone(), until).is_none();
        if is_new
            && dropped_by.len() == self.pipelines.len()
            && let Some(&until) = dropped_by.values().min()
        {
            self.confirmed.push_back(DroppedProcess { process, until });
        }
        if self.order.len() > MAX_TRACKED_PROCESSES
            && let Some(oldest) = self.order.pop_front()
        {
            self.dropped_by.remove(&oldest);
        }
        if self.confirmed.len() > MAX_TRACKED_PROCESSES {
            self.confirmed.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pipeline(name: &str) -> PipelineId {
        name.parse().expect("valid pipeline name")
    }

    fn process(pid: i64) -> SampledProcess {
        SampledProcess { pid, time: 7 }
    }

    fn taken(follower: &DropSubscription) -> Vec<SampledProcess> {
        let dropped = follower.take();
        dropped.iter().map(|dropped| dropped.process).collect()
    }

    #[test]
    fn a_receiver_is_notified_once_all_its_pipelines_drop_a_process() {
        let state = DropFeedback::default();
        let (a, b, other) = (
            pipeline("profiles/a"),
            pipeline("profiles/b"),
            pipeline("profiles/other"),
        );
        let of_a = state.within([a.clone()]).reporter();
        let of_b = state.within([b.clone()]).reporter();
        let of_other = state.within([other]).reporter();
        let both = state
            .within([a.clone(), b])
            .subscribe()
            .expect("all pipelines report drops");
        let one = state
            .within([a])
            .subscribe()
            .expect("all pipelines report drops");

        of_a.report_drop(process(1));
        of_a.report_drop(process(1));
        of_other.report_drop(process(1));
        assert_eq!((taken(&both), taken(&one)), (vec![], vec![process(1)]));
        of_b.report_drop(SampledProcess {
            time: 8,
            ..process(1)
        });
        assert_eq!(taken(&both), [], "another profile");
        of_b.report_drop(process(1));
        assert_eq!((taken(&both), taken(&one)), (vec![process(1)], vec![]));
        of_b.report_drop(process(1));
        assert_eq!(taken(&both), [], "reported once");
    }

    #[test]
    fn no_subscription_if_a_pipeline_drops_nothing() {
        let state = DropFeedback::default();
        let (a, b) = (pipeline("profiles/a"), pipeline("profiles/b"));
        assert!(state.within([]).subscribe().is_none());
        assert!(state.within([a.clone()]).subscribe().is_none());
        state.within([a.clone()]).reporter();
        assert!(state.within([a.clone()]).subscribe().is_some());
        assert!(state.within([a, b]).subscribe().is_none());
    }

    #[test]
    fn the_oldest_are_evicted() {
        let state = DropFeedback::default();
        let (a, b) = (pipeline("profiles/a"), pipeline("profiles/b"));
        let of_a = state.within([a.clone()]).reporter();
        let of_b = state.within([b.clone()]).reporter();
        let both = state
            .within([a, b])
            .subscribe()
            .expect("all pipelines report drops");
        for pid in 0..=MAX_TRACKED_PROCESSES as i64 {
            of_a.report_drop(process(pid));
        }
        of_b.report_drop(process(0));
        of_b.report_drop(process(2));
        assert_eq!(taken(&both), [process(2)]);
    }

    #[test]
    fn a_drop_expires_with_the_earliest_pipeline() {
        let state = DropFeedback::default();
        let (a, b) = (pipeline("profiles/a"), pipeline("profiles/b"));
        let of_a = state.within([a.clone()]).reporter();
        let of_b = state.within([b.clone()]).reporter();
        let both = state
            .within([a, b])
            .subscribe()
            .expect("all pipelines report drops");
        let check = |pid, of_a_until, of_b_until, expected| {
            of_a.report_drop_until(process(pid), of_a_until);
            of_b.report_drop_until(process(pid), of_b_until);
            let until: Vec<_> = both.take().iter().map(|it| it.until).collect();
            assert_eq!(until, [expected], "{of_a_until:?} and {of_b_until:?}");
        };
        check(
            1,
            DropExpiry::Time(5),
            DropExpiry::Time(6),
            DropExpiry::Time(5),
        );
        check(
            2,
            DropExpiry::ProcessEnd,
            DropExpiry::Time(6),
            DropExpiry::Time(6),
        );
        check(
            3,
            DropExpiry::ProcessEnd,
            DropExpiry::ProcessEnd,
            DropExpiry::ProcessEnd,
        );
    }
}
