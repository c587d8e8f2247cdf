//! Replaces the running configuration.
//!
//! ```text
//! build ─► start ─► replace those that cannot run at the same time ─► connect ─► drain the rest, in the background
//!   └───────┴── failure: nothing happened      └── failure: start the old ones again
//! ```
//!
//! A component whose configuration and extensions are unchanged keeps running, with its connections, tables and queue.

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;
use std::time::Duration;

use profcol_component::{CurrentService, DropFeedback, InstanceId, Receiver, Stop};
use profcol_net::ListeningSockets;

use super::drain::{DrainOrder, Schedule, StoppingComponents};
use super::{Service, StartFailure, middle_components, run_receiver, start_receiver};
use crate::document::Document;
use crate::graph::link::{Calls, Gate, RemovedExporter, Target};
use crate::graph::{BuildFailure, Graph, Named};
use crate::sender::DropReason;

/// How long replaced components that cannot overlap with the new ones may still drain after a shutdown was requested.
const SHUTDOWN_DRAIN_TIMEOUT: Duration = Duration::from_secs(2);

/// How long components that a failed reload has started may take to stop.
const ROLLBACK_DRAIN_TIMEOUT: Duration = Duration::from_secs(5);

/// What a reload has done, by component.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reloaded {
    pub added: Vec<String>,
    pub replaced: Vec<String>,
    pub removed: Vec<String>,
    /// The number of components that keep running.
    pub kept: usize,
}

/// Why the configuration was not replaced. Unless it is `Lost`, the running one is intact.
#[derive(Debug, thiserror::Error)]
pub enum ReloadFailure {
    #[error("`{0}` has changed: restart profcol to apply it")]
    NeedsRestart(&'static str),
    #[error(transparent)]
    Build(#[from] BuildFailure),
    #[error(transparent)]
    Start(#[from] StartFailure),
    #[error("{failure}; and the running configuration could not be restored: {restoring}")]
    Lost {
        #[source]
        failure: StartFailure,
        restoring: Box<ReloadFailure>,
    },
}

/// Receivers that have started and do not run yet.
type Ready = Vec<(InstanceId, Box<dyn Receiver>)>;

/// The entrances of exporters that are being replaced, by id.
type Gates = Vec<(String, Arc<Gate>)>;

/// The components of a graph that a step of the reload starts.
#[derive(Clone, Copy, PartialEq, Eq)]
enum StartSelection {
    All,
    Exclusive,
    Others,
}

impl Service {
    /// Replaces the configuration. After `shutdown`, replaced components get little time to stop.
    pub async fn reload(
        &mut self,
        document: &Document,
        shutdown: &Stop,
    ) -> Result<Reloaded, ReloadFailure> {
        self.check_reloadable(document)?;
        let mut next = self.graph.rebuild(document)?;
        let (running, wanted) = (self.graph.instances(), next.instances());
        let mut ready = Ready::new();
        let started = self.start_new(&mut next, &running, StartSelection::Others, &mut ready);
        if let Err(failure) = started.await {
            self.roll_back(&next, &running, ready).await;
            return Err(failure.into());
        }
        let limit = Duration::from(document.service.reload.drain_timeout);
        let schedule = Schedule::of(limit, DropReason::Reload);
        // New connections wait until the new listeners are there.
        let sockets: ListeningSockets = next.context.shared.get();
        let _kept = sockets.keep();
        let gates = self
            .stop_exclusive(&next, &wanted, schedule, shutdown)
            .await;
        let started = self.start_new(&mut next, &running, StartSelection::Exclusive, &mut ready);
        if let Err(failure) = started.await {
            self.roll_back(&next, &running, ready).await;
            return Err(match self.restore(&wanted, gates).await {
                Ok(()) => ReloadFailure::Start(failure),
                Err(restoring) => ReloadFailure::Lost {
                    failure,
                    restoring: restoring.into(),
                },
            });
        }
        let reloaded = changes(&self.graph, &next);
        self.switch_to(next, ready, gates, schedule);
        Ok(reloaded)
    }

    /// The settings of the running configuration.
    pub fn settings(&self) -> &crate::document::ServiceSection {
        &self.graph.document.service
    }

    /// Settings that only a start reads must be unchanged.
    fn check_reloadable(&self, document: &Document) -> Result<(), ReloadFailure> {
        let telemetry =
            |document: &Document| serde_json::to_value(&document.service.telemetry).ok();
        let running = &self.graph.document;
        if telemetry(running) != telemetry(document) {
            return Err(ReloadFailure::NeedsRestart("service::telemetry"));
        }
        if running.service.sandbox != document.service.sandbox {
            return Err(ReloadFailure::NeedsRestart("service::sandbox"));
        }
        Ok(())
    }

    async fn start_new(
        &mut self,
        next: &mut Graph,
        running: &BTreeSet<InstanceId>,
        selection: StartSelection,
        ready: &mut Ready,
    ) -> Result<(), StartFailure> {
        let selects = |instance: InstanceId, is_exclusive: bool| {
            let is_selected = match selection {
                StartSelection::All => true,
                StartSelection::Exclusive => is_exclusive,
                StartSelection::Others => !is_exclusive,
            };
            is_selected && !running.contains(&instance)
        };
        for named in &next.extensions {
            if selects(named.instance, named.is_exclusive) {
                self.start_extension(named).await?;
            }
        }
        for named in &next.exporters {
            if selects(named.instance, named.is_exclusive) {
                self.start_exporter(named).await?;
            }
        }
        for component in middle_components(next, selects) {
            self.start_middle_component(&component).await?;
        }
        for feed in &mut next.receivers {
            if selects(feed.receiver.instance, feed.receiver.is_exclusive)
                && let Some(component) = start_receiver(feed).await?
            {
                ready.push((feed.receiver.instance, component));
            }
        }
        Ok(())
    }

    /// Stops the components of `graph` that do not run in this service.
    async fn roll_back(&mut self, graph: &Graph, running: &BTreeSet<InstanceId>, ready: Ready) {
        drop(ready);
        let is_new = |instance: &InstanceId| !running.contains(instance);
        for instance in graph.instances().iter().filter(|it| is_new(it)) {
            self.ledger.forget(*instance);
        }
        let stopping = StoppingComponents::select(graph, &mut self.tasks, is_new, |_| false);
        let schedule = Schedule::of(ROLLBACK_DRAIN_TIMEOUT, DropReason::Reload);
        for failure in stopping
            .drain(schedule, DrainOrder::now(), &self.ledger)
            .await
        {
            tracing::warn!(error = %failure, "A component of the refused configuration failed to stop.");
        }
    }

    /// Stops components that cannot run at the same time as the new ones. Batches for their exporters wait.
    async fn stop_exclusive(
        &mut self,
        next: &Graph,
        wanted: &BTreeSet<InstanceId>,
        schedule: Schedule,
        shutdown: &Stop,
    ) -> Gates {
        let exclusive = exclusive(&self.graph);
        let leaves =
            |instance: &InstanceId| exclusive.contains(instance) && !wanted.contains(instance);
        let mut gates = Gates::new();
        for named in self
            .graph
            .exporters
            .iter()
            .filter(|it| leaves(&it.instance))
        {
            let gate = Gate::closed();
            let target = Target::new(gate.clone(), &Calls::default());
            let exits = self.graph.pipelines.iter().map(|route| &route.exit);
            for exit in exits.chain(self.drains.exits()) {
                exit.redirect(&named.id, &target);
            }
            gates.push((named.id.clone(), gate));
        }
        let stored = |id: &str| {
            let mut exporters = next.exporters.iter();
            exporters.any(|named| named.id == id && named.component.is_stored())
        };
        let exporters = self.graph.exporters.iter();
        let handed_over: HashSet<InstanceId> = exporters
            .filter(|named| leaves(&named.instance) && stored(&named.id))
            .map(|named| named.instance)
            .collect();
        let mut stopping =
            StoppingComponents::select(&self.graph, &mut self.tasks, leaves, |_| false);
        stopping.hand_over(handed_over);
        let shutdown_deadline = async {
            shutdown.cancelled().await;
            tokio::time::sleep(SHUTDOWN_DRAIN_TIMEOUT).await;
        };
        tokio::select! {
            failures = stopping.drain(schedule, DrainOrder::now(), &self.ledger) => {
                for failure in failures {
                    tracing::error!(error = %failure, "A replaced component failed to stop.");
                }
            }
            // The tasks are aborted; the balance counts what they held.
            () = shutdown_deadline => {}
        }
        gates
    }

    /// Starts the stopped components of the running configuration again.
    async fn restore(
        &mut self,
        wanted: &BTreeSet<InstanceId>,
        gates: Gates,
    ) -> Result<(), ReloadFailure> {
        let exclusive = exclusive(&self.graph);
        self.graph
            .retain(|instance| !exclusive.contains(instance) || wanted.contains(instance));
        let document = self.graph.document.clone();
        let running = self.graph.instances();
        let mut restored = self.graph.rebuild(&document)?;
        let mut ready = Ready::new();
        self.start_new(&mut restored, &running, StartSelection::All, &mut ready)
            .await?;
        let schedule = Schedule::of(ROLLBACK_DRAIN_TIMEOUT, DropReason::Reload);
        self.switch_to(restored, ready, gates, schedule);
        Ok(())
    }

    /// Connects the new graph and drains what is not in it.
    fn switch_to(&mut self, next: Graph, ready: Ready, gates: Gates, schedule: Schedule) {
        let (running, wanted) = (self.graph.instances(), next.instances());
        next.connect();
        for (id, gate) in gates {
            let mut exporters = next.exporters.iter();
            gate.open(match exporters.find(|named| named.id == id) {
                Some(named) => named.target(),
                None => Target::new(Arc::new(RemovedExporter), &Calls::default()),
            });
        }
        self.update_statuses(&next);
        self.update_feedback(&next, &running, &wanted);
        let context = &next.context;
        let info = next.document.info();
        context.shared.get::<CurrentService>().set(info);
        for (instance, component) in ready {
            let mut feeds = next.receivers.iter();
            if let Some(feed) = feeds.find(|feed| feed.receiver.instance == instance) {
                let meter = &context.telemetry.meter;
                run_receiver(feed, component, meter, &self.ledger, &mut self.tasks);
            }
        }
        let stopping = StoppingComponents::select(
            &self.graph,
            &mut self.tasks,
            |instance| !wanted.contains(instance),
            |pipeline| !(next.pipelines.iter()).any(|route| route.id.to_string() == pipeline),
        );
        let exits = self.graph.pipelines.iter().map(|it| Arc::clone(&it.exit));
        let exits = exits.collect();
        self.graph = next;
        let order = self.drains.next(exits);
        let ledger = self.ledger.clone();
        // Those of earlier reloads that have ended.
        while self.draining.try_join_next().is_some() {}
        self.draining.spawn(async move {
            let failures = stopping.drain(schedule, order, &ledger).await;
            for failure in &failures {
                tracing::error!(error = %failure, "A replaced component failed to stop.");
            }
            Vec::new()
        });
    }

    /// Each component has one entry on the board, that of the instance in `next`.
    fn update_statuses(&self, next: &Graph) {
        let (old, new) = (statuses(&self.graph), statuses(next));
        for (label, instance, status) in &old {
            match new.iter().find(|(other, ..)| other == label) {
                Some((_, kept, _)) if kept == instance => {}
                Some(_) => status.retire(),
                None => status.remove(),
            }
        }
        for (.., status) in new {
            status.show();
        }
    }

    fn update_feedback(
        &self,
        next: &Graph,
        running: &BTreeSet<InstanceId>,
        wanted: &BTreeSet<InstanceId>,
    ) {
        let feedback = next.context.shared.get::<DropFeedback>();
        for left in running.difference(wanted) {
            feedback.retire(*left);
        }
        let stages = |graph: &Graph, id: &str| {
            let mut routes = graph.pipelines.iter();
            let route = routes.find(|route| route.id.to_string() == id);
            let stages = route.map(|route| route.stages.iter().map(|stage| stage.instance));
            stages.map(Iterator::collect::<Vec<_>>)
        };
        for feed in &next.receivers {
            let instance = feed.receiver.instance;
            let mut known = self.graph.receivers.iter();
            let known = known.find(|known| known.receiver.instance == instance);
            let has_changed = known.is_some_and(|known| {
                known.pipelines != feed.pipelines
                    || (feed.pipelines.iter().map(ToString::to_string))
                        .any(|id| stages(&self.graph, &id) != stages(next, &id))
            });
            if has_changed {
                feedback.change_pipelines(instance, Arc::clone(&feed.pipelines));
            }
        }
    }
}

type LabelledStatus = (String, InstanceId, profcol_component::ComponentStatus);

fn statuses(graph: &Graph) -> Vec<LabelledStatus> {
    fn of<C>(named: &Named<C>) -> LabelledStatus {
        (named.label.clone(), named.instance, named.status.clone())
    }
    let stages = graph.pipelines.iter().flat_map(|route| &route.stages);
    (graph.extensions.iter().map(of))
        .chain(graph.exporters.iter().map(of))
        .chain(graph.connectors.iter().map(|placed| of(&placed.connector)))
        .chain(stages.map(of))
        .chain(graph.receivers.iter().map(|feed| of(&feed.receiver)))
        .collect()
}

/// The components that cannot run at the same time as another instance of themselves.
fn exclusive(graph: &Graph) -> BTreeSet<InstanceId> {
    fn of<C>(named: &Named<C>) -> Option<InstanceId> {
        named.is_exclusive.then_some(named.instance)
    }
    let stages = graph.pipelines.iter().flat_map(|route| &route.stages);
    (graph.extensions.iter().filter_map(of))
        .chain(graph.exporters.iter().filter_map(of))
        .chain((graph.connectors.iter()).filter_map(|it| of(&it.connector)))
        .chain(stages.filter_map(of))
        .chain(graph.receivers.iter().filter_map(|it| of(&it.receiver)))
        .collect()
}

fn changes(old: &Graph, new: &Graph) -> Reloaded {
    let (old, new) = (statuses(old), statuses(new));
    let mut reloaded = Reloaded::default();
    for (label, instance, _) in &new {
        match old.iter().find(|(other, ..)| other == label) {
            Some((_, other, _)) if other == instance => reloaded.kept += 1,
            Some(_) => reloaded.replaced.push(label.clone()),
            None => reloaded.added.push(label.clone()),
        }
    }
    let is_gone = |label: &String| !new.iter().any(|(other, ..)| other == label);
    let removed = old.into_iter().map(|(label, ..)| label).filter(is_gone);
    reloaded.removed = removed.collect();
    reloaded
}
