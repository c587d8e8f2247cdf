//! Why processors dropped processes, for people who miss one.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::SystemTime;

use profcol_config::PipelineId;
use profcol_profile::{Resource, attributes_size};

use crate::InstanceId;

/// The oldest are evicted.
const MAX_REASONS: usize = 1024;
const MAX_BYTES: usize = 4 << 20;

/// Why a processor dropped a process.
#[derive(Clone, Debug)]
pub struct ProcessDropReason {
    pub pid: i64,
    /// The processor's id.
    pub processor: Arc<str>,
    pub pipeline: PipelineId,
    /// Such as the rule.
    pub reason: String,
    /// When it was first dropped for this reason.
    pub time: SystemTime,
    /// The process as the processor saw it.
    pub resource: Arc<Resource>,
}

/// The last reasons of all processors, one per process and processor.
#[derive(Debug, Default)]
pub(crate) struct DropReasons {
    known: HashMap<(InstanceId, i64), ProcessDropReason>,
    order: VecDeque<(InstanceId, i64)>,
    bytes: usize,
}

impl ProcessDropReason {
    fn size(&self) -> usize {
        size_of::<Self>() + self.reason.len() + attributes_size(&self.resource.attributes)
    }
}

impl DropReasons {
    /// Whether the reason for this process is known, and the process has not changed since.
    pub(crate) fn is_known(&self, instance: InstanceId, pid: i64, resource: &Resource) -> bool {
        let known = self.known.get(&(instance, pid));
        known.is_some_and(|known| *known.resource == *resource)
    }

    pub(crate) fn add(&mut self, instance: InstanceId, reason: ProcessDropReason) {
        let key = (instance, reason.pid);
        self.bytes += reason.size();
        match self.known.insert(key, reason) {
            Some(previous) => self.bytes -= previous.size(),
            None => self.order.push_back(key),
        }
        while (self.order.len() > MAX_REASONS || self.bytes > MAX_BYTES)
            && let Some(oldest) = self.order.pop_front()
        {
            self.bytes -= self.known.remove(&oldest).map_or(0, |it| it.size());
        }
    }

    pub(crate) fn forget(&mut self, instance: InstanceId) {
        self.order.retain(|(of, _)| *of != instance);
        let forgotten = self.known.extract_if(|(of, _), _| *of == instance);
        self.bytes -= forgotten.map(|(_, reason)| reason.size()).sum::<usize>();
    }

    /// In the order of the drops.
    pub(crate) fn all(&self) -> Vec<ProcessDropReason> {
        let known = self.order.iter().filter_map(|key| self.known.get(key));
        known.cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use profcol_profile::KeyValue;

    use super::*;

    fn reason(pid: i64, text: &str) -> ProcessDropReason {
        ProcessDropReason {
            pid,
            processor: "relabel".into(),
            pipeline: "profiles".parse().expect("valid pipeline id"),
            reason: "rule 1".to_owned(),
            time: SystemTime::UNIX_EPOCH,
            resource: Arc::new(Resource {
                attributes: vec![KeyValue::new("text", text)],
                ..Resource::default()
            }),
        }
    }

    fn pids(reasons: &DropReasons) -> Vec<i64> {
        reasons.all().iter().map(|it| it.pid).collect()
    }

    #[test]
    fn there_is_one_reason_per_process_and_processor() {
        let mut reasons = DropReasons::default();
        let [one, other] = [InstanceId(1), InstanceId(2)];
        reasons.add(one, reason(7, "a"));
        assert!(reasons.is_known(one, 7, &reason(7, "a").resource));
        assert!(!reasons.is_known(one, 7, &reason(7, "b").resource));
        reasons.add(one, reason(7, "b"));
        reasons.add(other, reason(7, "a"));
        reasons.add(one, reason(8, "a"));
        assert_eq!(pids(&reasons), [7, 7, 8]);
        reasons.forget(one);
        assert_eq!(pids(&reasons), [7]);
        reasons.forget(other);
        assert_eq!((reasons.bytes, reasons.order.len()), (0, 0));
    }

    #[test]
    fn the_oldest_are_evicted() {
        let mut reasons = DropReasons::default();
        for pid in 0..MAX_REASONS as i64 + 2 {
            reasons.add(InstanceId(1), reason(pid, ""));
        }
        assert_eq!((pids(&reasons).len(), pids(&reasons)[0]), (MAX_REASONS, 2));
        let long = "x".repeat(MAX_BYTES / 3);
        for pid in 0..4 {
            reasons.add(InstanceId(2), reason(pid, &long));
        }
        assert_eq!(pids(&reasons), [2, 3]);
    }
}
