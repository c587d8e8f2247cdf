//! What was sampled lately, for the program that runs the pipelines itself: the same history that the page asks.

use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};
use std::time::Duration;

use profcol_flamegraph::{CallTree, Source};

use super::history::{Answer, History, Query, Selector};
use super::parameters::now;

/// Offered by the exporter `live_view`.
#[derive(Clone)]
pub struct Recent(Arc<RwLock<History>>);

/// The samples of some seconds.
#[derive(Clone, Debug, Default)]
pub struct Look {
    pub tree: CallTree,
    pub source: Source,
    /// The groups that were asked for, in that order.
    pub groups: Vec<Vec<Group>>,
    pub processes: Vec<ProcessGroup>,
}

/// What has one value of a label.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Group {
    pub value: String,
    pub total: u64,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProcessGroup {
    pub pid: i64,
    pub name: String,
    pub total: u64,
}

/// More are on no screen.
const MAX_GROUPS: usize = 1000;
/// Samples come a second or so after they were taken; what is older than that and the window is not shown for now.
const DELAY: Duration = Duration::from_secs(4);

impl Recent {
    pub(super) fn new(history: Arc<RwLock<History>>) -> Self {
        Self(history)
    }

    /// What was sampled in the last `window`. The tree is of samples with the label `only`, and the groups of all, by the
    /// values of `labels`.
    pub fn look(&self, window: Duration, only: Option<(&str, &str)>, labels: &[&str]) -> Look {
        self.look_at(now(), window, only, labels)
    }

    pub(super) fn look_at(
        &self,
        now: u64,
        window: Duration,
        only: Option<(&str, &str)>,
        labels: &[&str],
    ) -> Look {
        self.write_names();
        let history = self.read();
        let extent = history.extent();
        let (oldest, newest) = (extent.oldest.unwrap_or(0), extent.newest.unwrap_or(0));
        let millis = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        let is_stale = newest.saturating_add(millis(window.saturating_add(DELAY))) < now;
        let until = if is_stale { now } else { newest };
        // Before the first sample nothing was measured.
        let from = history.slice_start(until.saturating_sub(millis(window)));
        let all = Query {
            kind: None,
            from: from.max(oldest.min(until)),
            until,
            selector: Selector::default(),
            call_site: Vec::new(),
        };
        let some = Query {
            selector: only.map_or_else(Selector::default, |(label, value)| {
                Selector::equals(label, value)
            }),
            ..all.clone()
        };
        let Answer { tree, source } = history.call_tree(&some, None);
        let groups = labels.iter().map(|label| {
            let values = history.label_values(&all, label, MAX_GROUPS).into_iter();
            let group = values.map(|it| Group {
                value: it.value,
                total: it.total,
            });
            group.collect()
        });
        let processes = history.processes(&all, MAX_GROUPS).into_iter();
        Look {
            tree,
            source,
            groups: groups.collect(),
            processes: processes
                .map(|it| ProcessGroup {
                    pid: it.pid,
                    name: it.name,
                    total: it.total,
                })
                .collect(),
        }
    }

    /// Names come behind their samples.
    fn write_names(&self) {
        let mut history = self.0.write().unwrap_or_else(PoisonError::into_inner);
        history.resolve_symbols();
    }

    fn read(&self) -> RwLockReadGuard<'_, History> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }
}
