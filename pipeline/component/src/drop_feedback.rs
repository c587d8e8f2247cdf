//! Feedback about dropped processes, from processors to the receiver that samples them, so that it
//! can stop sampling them.
//!
//! A processor reports each process that it drops entirely. Once all pipelines of a receiver
//! dropped it, the receiver is notified. A [`SampledProcess`] identifies a process within one
//! profile, so that the decision does not apply to a later process with the same PID, or to the
//! same process after an exec.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;
use std::time::SystemTime;

use parking_lot::Mutex;
use profcol_config::PipelineId;
use profcol_profile::Resource;

use crate::drop_reasons::{DropReasons, ProcessDropReason};
use crate::{BuildContext, InstanceId};

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
    instance: InstanceId,
    /// The component's id.
    id: Arc<str>,
}

/// Reports the processes that a processor drops.
#[derive(Debug)]
pub struct DropReporter(DropFeedback);

/// Receives the processes that all pipelines of a receiver drop.
#[derive(Debug)]
pub struct DropSubscription {
    state: Arc<Mutex<FeedbackState>>,
    instance: InstanceId,
}

#[derive(Debug, Default)]
struct FeedbackState {
    /// Processors that may drop processes, with their pipelines.
    reporters: BTreeMap<InstanceId, Arc<[PipelineId]>>,
    receivers: BTreeMap<InstanceId, ReceiverFeedback>,
    reasons: DropReasons,
}

#[derive(Debug)]
struct ReceiverFeedback {
    pipelines: Arc<[PipelineId]>,
    /// A reload changed the pipelines: they may keep what they dropped before.
    has_changed: bool,
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
        Self {
            id: context.id.to_string().into(),
            ..feedback.within(context.pipelines.iter().cloned(), context.instance)
        }
    }

    /// A handle for a component in these pipelines.
    fn within(
        &self,
        pipelines: impl IntoIterator<Item = PipelineId>,
        instance: InstanceId,
    ) -> Self {
        Self {
            state: Arc::clone(&self.state),
            pipelines: pipelines.into_iter().collect(),
            instance,
            id: Arc::default(),
        }
    }

    /// For processors, at build time.
    pub fn reporter(&self) -> DropReporter {
        let mut state = self.state.lock();
        let pipelines = Arc::clone(&self.pipelines);
        state.reporters.insert(self.instance, pipelines);
        drop(state);
        DropReporter(self.clone())
    }

    /// For receivers, at build time.
    pub fn subscribe(&self) -> DropSubscription {
        let feedback = ReceiverFeedback {
            pipelines: Arc::clone(&self.pipelines),
            has_changed: false,
            dropped_by: HashMap::new(),
            order: VecDeque::new(),
            confirmed: VecDeque::new(),
        };
        let mut state = self.state.lock();
        state.receivers.insert(self.instance, feedback);
        DropSubscription {
            state: Arc::clone(&self.state),
            instance: self.instance,
        }
    }

    /// For reloads: ignores the reports of a processor that left its pipeline.
    pub fn retire(&self, reporter: InstanceId) {
        let mut state = self.state.lock();
        state.reporters.remove(&reporter);
        state.reasons.forget(reporter);
    }

    /// Why processors dropped processes lately.
    pub fn reasons(&self) -> Vec<ProcessDropReason> {
        self.state.lock().reasons.all()
    }

    /// For reloads: the pipelines of a receiver, or their processors, have changed.
    pub fn change_pipelines(&self, receiver: InstanceId, pipelines: Arc<[PipelineId]>) {
        if let Some(receiver) = self.state.lock().receivers.get_mut(&receiver) {
            receiver.pipelines = pipelines;
            receiver.has_changed = true;
            receiver.dropped_by.clear();
            receiver.order.clear();
            receiver.confirmed.clear();
        }
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
        if !state.reporters.contains_key(&self.0.instance) {
            return;
        }
        for receiver in state.receivers.values_mut() {
            for pipeline in &*self.0.pipelines {
                receiver.record_drop(pipeline, process, until);
            }
        }
    }
}

impl DropReporter {
    /// Remembers why a process is dropped, for people who miss it. Nobody else reads the reason.
    pub fn explain_drop(
        &self,
        pid: i64,
        resource: &Arc<Resource>,
        reason: impl FnOnce() -> String,
    ) {
        let DropFeedback {
            state,
            pipelines,
            instance,
            id,
        } = &self.0;
        let mut state = state.lock();
        let is_retired = !state.reporters.contains_key(instance);
        let Some(pipeline) = pipelines.first() else {
            return;
        };
        if is_retired || state.reasons.is_known(*instance, pid, resource) {
            return;
        }
        let reason = ProcessDropReason {
            pid,
            processor: Arc::clone(id),
            pipeline: pipeline.clone(),
            reason: reason(),
            time: SystemTime::now(),
            resource: Arc::clone(resource),
        };
        state.reasons.add(*instance, reason);
    }
}

impl Drop for DropReporter {
    fn drop(&mut self) {
        self.0.retire(self.0.instance);
    }
}

impl DropSubscription {
    /// Whether each pipeline has a processor that may drop processes.
    pub fn is_active(&self) -> bool {
        let state = self.state.lock();
        let may_drop = |pipeline| {
            let mut reporters = state.reporters.values();
            reporters.any(|pipelines| pipelines.contains(pipeline))
        };
        let receiver = state.receivers.get(&self.instance);
        receiver.is_some_and(|receiver| {
            !receiver.pipelines.is_empty() && receiver.pipelines.iter().all(may_drop)
        })
    }

    /// Processes that all pipelines dropped since the last call.
    pub fn take(&self) -> Vec<DroppedProcess> {
        let mut state = self.state.lock();
        let receiver = state.receivers.get_mut(&self.instance);
        receiver.map_or_else(Vec::new, |receiver| receiver.confirmed.drain(..).collect())
    }

    /// Whether the pipelines have changed since the last call: those dropped before must be sampled again.
    pub fn take_change(&self) -> bool {
        let mut state = self.state.lock();
        let receiver = state.receivers.get_mut(&self.instance);
        receiver.is_some_and(|receiver| std::mem::take(&mut receiver.has_changed))
    }
}

impl Drop for DropSubscription {
    fn drop(&mut self) {
        self.state.lock().receivers.remove(&self.instance);
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
        let of_a = state.within([a.clone()], InstanceId(1)).reporter();
        let of_b = state.within([b.clone()], InstanceId(2)).reporter();
        let of_other = state.within([other], InstanceId(3)).reporter();
        let both = state.within([a.clone(), b], InstanceId(4)).subscribe();
        let one = state.within([a], InstanceId(5)).subscribe();

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
    fn reasons_are_kept_until_the_processor_leaves() {
        let state = DropFeedback::default();
        let reporter = state
            .within([pipeline("profiles/a")], InstanceId(1))
            .reporter();
        let resource = Arc::new(Resource::default());
        reporter.explain_drop(7, &resource, || "rule 1".to_owned());
        // The reason of a known process is not even written again.
        reporter.explain_drop(7, &resource, || unreachable!());
        let reasons = state.reasons();
        let [reason] = &reasons[..] else {
            panic!("{reasons:?}");
        };
        assert_eq!((reason.pid, &*reason.reason), (7, "rule 1"));
        state.retire(InstanceId(1));
        reporter.explain_drop(8, &resource, || "rule 1".to_owned());
        assert!(state.reasons().is_empty());
    }

    #[test]
    fn inactive_while_a_pipeline_drops_nothing() {
        let state = DropFeedback::default();
        let (a, b) = (pipeline("profiles/a"), pipeline("profiles/b"));
        let of = |pipelines: &[PipelineId], instance| {
            let pipelines = pipelines.iter().cloned();
            state.within(pipelines, InstanceId(instance)).subscribe()
        };
        let (none, one) = (of(&[], 1), of(std::slice::from_ref(&a), 2));
        let both = of(&[a.clone(), b], 3);
        assert!(!none.is_active() && !one.is_active());
        let reporter = state.within([a], InstanceId(4)).reporter();
        assert!(one.is_active() && !both.is_active());
        drop(reporter);
        assert!(!one.is_active());
    }

    #[test]
    fn a_reload_forgets_what_earlier_pipelines_dropped() {
        let state = DropFeedback::default();
        let (a, b) = (pipeline("profiles/a"), pipeline("profiles/b"));
        let old = state.within([a.clone()], InstanceId(1)).reporter();
        let receiver = state.within([a.clone()], InstanceId(2)).subscribe();
        old.report_drop(process(1));
        let new = state.within([a.clone()], InstanceId(3)).reporter();
        state.retire(InstanceId(1));
        state.change_pipelines(InstanceId(2), [a.clone()].into());
        old.report_drop(process(2));
        assert!(receiver.take_change() && !receiver.take_change());
        assert_eq!(taken(&receiver), []);
        new.report_drop(process(3));
        assert_eq!(taken(&receiver), [process(3)]);
        state.change_pipelines(InstanceId(2), [a, b].into());
        new.report_drop(process(4));
        assert_eq!(taken(&receiver), [], "another pipeline keeps it");
    }

    #[test]
    fn the_oldest_are_evicted() {
        let state = DropFeedback::default();
        let (a, b) = (pipeline("profiles/a"), pipeline("profiles/b"));
        let of_a = state.within([a.clone()], InstanceId(1)).reporter();
        let of_b = state.within([b.clone()], InstanceId(2)).reporter();
        let both = state.within([a, b], InstanceId(3)).subscribe();
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
        let of_a = state.within([a.clone()], InstanceId(1)).reporter();
        let of_b = state.within([b.clone()], InstanceId(2)).reporter();
        let both = state.within([a, b], InstanceId(3)).subscribe();
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
