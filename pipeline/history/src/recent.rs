//! The most recent samples, for programs that embed the pipelines: from the same history as the page.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use profcol_flamegraph::{CallTree, Source};

use crate::{History, Query, QueryResult, Selector};

/// Offered by the exporter `live_view`.
#[derive(Clone)]
pub struct Recent(Arc<History>);

/// The samples of some seconds.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    pub tree: CallTree,
    pub source: Source,
    /// The requested groups, in the same order.
    pub groups: Vec<Vec<Group>>,
    pub processes: Vec<ProcessGroup>,
}

/// The samples with one value of a label.
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

/// More fit on no screen.
const MAX_GROUPS: usize = 1000;
/// Samples arrive about a second after they were taken. Samples older than this and the window are not shown.
const DELAY: Duration = Duration::from_secs(4);

impl Recent {
    pub fn new(history: Arc<History>) -> Self {
        Self(history)
    }

    /// The samples of the last `window`: a tree of those with the label `only`, and groups of all samples by the values
    /// of `labels`.
    pub fn snapshot(
        &self,
        window: Duration,
        only: Option<(&str, &str)>,
        labels: &[&str],
    ) -> Snapshot {
        self.snapshot_at(unix_millis(), window, only, labels)
    }

    pub(super) fn snapshot_at(
        &self,
        now: u64,
        window: Duration,
        only: Option<(&str, &str)>,
        labels: &[&str],
    ) -> Snapshot {
        let history = &self.0;
        // Deferred symbols become available after their samples.
        history.resolve_symbols();
        let extent = history.extent();
        let (oldest, newest) = (extent.oldest.unwrap_or(0), extent.newest.unwrap_or(0));
        let millis = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        let is_stale = newest.saturating_add(millis(window.saturating_add(DELAY))) < now;
        let until = if is_stale { now } else { newest };
        // The time before the first sample was not measured.
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
        let QueryResult { tree, source } = history.call_tree(&some, None);
        let groups = labels.iter().map(|label| {
            let values = history.label_values(&all, label, MAX_GROUPS).into_iter();
            let group = values.map(|it| Group {
                value: it.value,
                total: it.total,
            });
            group.collect()
        });
        let processes = history.processes(&all, MAX_GROUPS).into_iter();
        Snapshot {
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
}

pub(crate) fn unix_millis() -> u64 {
    let elapsed = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX)
}
