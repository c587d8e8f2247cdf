//! Stops components in the direction of the data: each once no other sends to it, so that accepted batches are still
//! delivered.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use profcol_component::{Extension, InstanceId};
use tokio::sync::watch;
use tokio::time::{Instant, timeout_at};

use super::ComponentTasks;
use super::ledger::Ledger;
use crate::graph::link::Calls;
use crate::graph::{ConnectorNode, FanOut, Graph, Named, Stage};
use crate::sender::{Closing, DropReason, Sender};
use crate::tasks::TaskFailure;

/// Fraction of the timeout for receivers, processors and queues. The rest is for exporters, which close files, and
/// extensions.
const RECEIVERS_DONE: f64 = 0.6;
const PROCESSORS_DONE: f64 = 0.7;
const QUEUES_DONE: f64 = 0.95;

/// The deadlines of the stages, so that none uses up the time of later ones.
#[derive(Clone, Copy)]
pub(super) struct Schedule {
    began: Instant,
    timeout: Duration,
    reason: DropReason,
}

/// The drains in the background, which may still send to what later reloads replace.
#[derive(Default)]
pub(super) struct DrainSet(Vec<Draining>);

struct Draining {
    senders: Senders,
    /// The ends of the pipelines through which they send.
    exits: Vec<Arc<FanOut>>,
}

/// Closed once the receivers, processors and connectors of a drain have ended.
type Senders = watch::Receiver<()>;

/// The drains before this one, whose components may still send to its own.
pub(super) struct DrainOrder {
    earlier: Vec<Senders>,
    /// Dropped when its own senders have ended.
    own: Option<watch::Sender<()>>,
}

/// Components to stop, and their tasks. No component that keeps running sends to them, but those of earlier drains may.
#[derive(Default)]
pub(super) struct StoppingComponents {
    receivers: Vec<(InstanceId, ComponentTasks)>,
    /// By the depth of their pipelines; the first stops first.
    layers: BTreeMap<usize, Layer>,
    exporters: Vec<(Named<Arc<Sender>>, ComponentTasks)>,
    /// Exporters whose next instance takes over the queue on disk.
    handed_over: HashSet<InstanceId>,
    extensions: Vec<(Named<Arc<dyn Extension>>, ComponentTasks)>,
}

/// The processors, fan-outs and connectors to stop in pipelines of the same depth.
#[derive(Default)]
struct Layer {
    /// By position in the pipeline; the first stops first.
    processors: Vec<Vec<(Named<Arc<Stage>>, ComponentTasks)>>,
    /// Calls to the fan-outs of pipelines.
    exits: Vec<Calls>,
    /// Connectors that these pipelines feed, and no deeper one does.
    connectors: Vec<(Named<Arc<ConnectorNode>>, ComponentTasks)>,
}

// === impl Schedule ===

impl Schedule {
    pub(super) fn of(timeout: Duration, reason: DropReason) -> Self {
        Self {
            began: Instant::now(),
            timeout,
            reason,
        }
    }

    pub(super) fn end(&self) -> Instant {
        self.after(1.0)
    }

    fn after(&self, share: f64) -> Instant {
        self.began + self.timeout.mul_f64(share)
    }
}

// === impl DrainSet ===

impl DrainSet {
    /// A drain that waits for those so far, of components that send through `exits`.
    pub(super) fn next(&mut self, exits: Vec<Arc<FanOut>>) -> DrainOrder {
        self.0.retain(Draining::is_sending);
        let earlier = self.0.iter().map(|it| it.senders.clone()).collect();
        let (own, senders) = watch::channel(());
        self.0.push(Draining { senders, exits });
        DrainOrder {
            earlier,
            own: Some(own),
        }
    }

    /// The exits through which drains may still send.
    pub(super) fn exits(&self) -> impl Iterator<Item = &Arc<FanOut>> {
        let sending = self.0.iter().filter(|it| it.is_sending());
        sending.flat_map(|it| &it.exits)
    }
}

impl Draining {
    fn is_sending(&self) -> bool {
        self.senders.has_changed().is_ok()
    }
}

// === impl DrainOrder ===

impl DrainOrder {
    /// The order of components to which no drain sends.
    pub(super) fn now() -> Self {
        Self {
            earlier: Vec::new(),
            own: None,
        }
    }

    /// Waits until the components of earlier drains send no more.
    async fn earlier_ended(&mut self) {
        for senders in &mut self.earlier {
            // There are no changes but the end.
            let _ = senders.changed().await;
        }
    }

    fn own_ended(&mut self) {
        self.own = None;
    }
}

// === impl StoppingComponents ===

impl StoppingComponents {
    /// All components that run.
    pub(super) fn all(graph: &Graph, tasks: &mut HashMap<InstanceId, ComponentTasks>) -> Self {
        Self::select(graph, tasks, |_| true, |_| true)
    }

    /// The running components of `graph` that are selected by instance, and the pipelines by id.
    pub(super) fn select(
        graph: &Graph,
        tasks: &mut HashMap<InstanceId, ComponentTasks>,
        leaves: impl Fn(&InstanceId) -> bool,
        pipeline_leaves: impl Fn(&str) -> bool,
    ) -> Self {
        let mut take = |instance: &InstanceId| match leaves(instance) {
            true => tasks.remove(instance),
            false => None,
        };
        let mut stopping = Self::default();
        for feed in &graph.receivers {
            let instance = feed.receiver.instance;
            let tasks = take(&instance).map(|tasks| (instance, tasks));
            stopping.receivers.extend(tasks);
        }
        for route in &graph.pipelines {
            let layer = stopping.layers.entry(route.depth).or_default();
            for (position, named) in route.stages.iter().enumerate() {
                if layer.processors.len() <= position {
                    layer.processors.resize_with(position + 1, Vec::new);
                }
                let tasks = take(&named.instance).map(|tasks| (named.clone(), tasks));
                layer.processors[position].extend(tasks);
            }
            if pipeline_leaves(&route.id.to_string()) {
                layer.exits.push(route.exit_calls.clone());
            }
        }
        for placed in &graph.connectors {
            let named = &placed.connector;
            let tasks = take(&named.instance).map(|tasks| (named.clone(), tasks));
            let layer = stopping.layers.entry(placed.depth).or_default();
            layer.connectors.extend(tasks);
        }
        for named in &graph.exporters {
            let tasks = take(&named.instance).map(|tasks| (named.clone(), tasks));
            stopping.exporters.extend(tasks);
        }
        for named in &graph.extensions {
            let tasks = take(&named.instance).map(|tasks| (named.clone(), tasks));
            stopping.extensions.extend(tasks);
        }
        stopping
    }

    /// Leaves the queues on disk of these exporters to their next instances.
    pub(super) fn hand_over(&mut self, exporters: HashSet<InstanceId>) {
        self.handed_over = exporters;
    }

    /// Stops all of them, and adds their counts to the ledger.
    pub(super) async fn drain(
        mut self,
        schedule: Schedule,
        mut order: DrainOrder,
        ledger: &Ledger,
    ) -> Vec<TaskFailure> {
        let mut failures = Vec::new();
        let receivers_done = schedule.after(RECEIVERS_DONE);
        let receivers =
            (self.receivers.iter_mut()).map(|(_, tasks)| tasks.running.end(receivers_done));
        failures.extend(join_all(receivers).await.into_iter().flatten());
        let processors_done = schedule.after(PROCESSORS_DONE);
        let _ = timeout_at(processors_done, order.earlier_ended()).await;
        for layer in self.layers.values_mut() {
            failures.extend(layer.drain(processors_done).await);
        }
        order.own_ended();
        let queues_done = schedule.after(QUEUES_DONE);
        let end = schedule.end();
        let handed_over = &self.handed_over;
        let exporters = self.exporters.iter_mut().map(async |(named, tasks)| {
            let _ = timeout_at(processors_done, named.calls.ended()).await;
            named.component.close(Closing {
                deadline: queues_done,
                reason: schedule.reason,
                hands_over: handed_over.contains(&named.instance),
            });
            let mut failures = Vec::new();
            if let Some(dispatcher) = &mut tasks.dispatcher {
                failures = dispatcher.end(queues_done).await;
            }
            failures.extend(tasks.running.end(end).await);
            failures
        });
        failures.extend(join_all(exporters).await.into_iter().flatten());
        let extensions = (self.extensions.iter_mut()).map(|(_, tasks)| tasks.running.end(end));
        failures.extend(join_all(extensions).await.into_iter().flatten());
        // What they still send would not be counted.
        order.earlier_ended().await;
        let receivers = self.receivers.iter().map(|(instance, _)| *instance);
        let middle_components = self.layers.values().flat_map(Layer::instances);
        let exporters = self.exporters.iter().map(|(named, _)| named.instance);
        for instance in receivers.chain(middle_components).chain(exporters) {
            ledger.close(instance);
        }
        failures
    }
}

// === impl Layer ===

impl Layer {
    async fn drain(&mut self, deadline: Instant) -> Vec<TaskFailure> {
        let mut failures = Vec::new();
        for position in &mut self.processors {
            let stages = position
                .iter_mut()
                .map(|(named, tasks)| end(named, tasks, deadline));
            failures.extend(join_all(stages).await.into_iter().flatten());
        }
        for calls in &self.exits {
            let _ = timeout_at(deadline, calls.ended()).await;
        }
        let connectors =
            (self.connectors.iter_mut()).map(|(named, tasks)| end(named, tasks, deadline));
        failures.extend(join_all(connectors).await.into_iter().flatten());
        failures
    }

    fn instances(&self) -> impl Iterator<Item = InstanceId> {
        let processors = self.processors.iter().flatten();
        let connectors = self.connectors.iter().map(|(named, _)| named.instance);
        processors
            .map(|(named, _)| named.instance)
            .chain(connectors)
    }
}

/// Stops a component once the calls to it have ended.
async fn end<C>(
    named: &Named<C>,
    tasks: &mut ComponentTasks,
    deadline: Instant,
) -> Vec<TaskFailure> {
    // On timeout, it stops with calls in flight.
    let _ = timeout_at(deadline, named.calls.ended()).await;
    tasks.running.end(deadline).await
}
