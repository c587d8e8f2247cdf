//! Builds and connects the components of a configuration, without starting them.
//!
//! Receivers, exporters, connectors and extensions have one instance per id, processors one per pipeline. Only components
//! used by the service are built. A reload builds a second graph that shares the unchanged components with the running
//! one.

mod check;
mod connector_node;
mod fan_out;
pub(crate) mod link;
mod pipeline;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use profcol_admission::Admission;
use profcol_component::{
    BuildContext, BuildError, ComponentStatus, Consumer, CurrentService, Entry, Exporter,
    Extension, Extensions, Handles, InstanceId, Kind, Receiver, SelfTelemetry, Shared, Side,
    Status, Tap, TapPoint, Taps,
};
use profcol_config::{ComponentId, PipelineId};
use profcol_storage::Storage;
use serde_json::Value;

pub use self::check::ComponentChecks;
pub(crate) use self::connector_node::ConnectorNode;
use self::fan_out::Branch;
pub(crate) use self::fan_out::FanOut;
use self::link::{Calls, Target};
pub use self::pipeline::ProcessorBalance;
pub(crate) use self::pipeline::Stage;
use crate::document::{Declared, Document, Pipeline};
use crate::sender::Sender;

/// Connected components.
pub struct Graph {
    pub(crate) document: Document,
    pub(crate) extensions: Vec<Named<Arc<dyn Extension>>>,
    pub(crate) exporters: Vec<Named<Arc<Sender>>>,
    pub(crate) connectors: Vec<PlacedConnector>,
    pub(crate) pipelines: Vec<Route>,
    pub(crate) receivers: Vec<ReceiverNode>,
    pub(crate) context: GraphContext,
}

/// Shared by all components, including those that a reload adds.
#[derive(Clone)]
pub(crate) struct GraphContext {
    pub(crate) telemetry: SelfTelemetry,
    pub(crate) shared: Shared,
    taps: Taps,
    admission: Admission,
    instances: Arc<AtomicU64>,
}

/// A pipeline: its processors in order, and its fan-out to the exporters.
pub(crate) struct Route {
    pub(crate) id: PipelineId,
    pub(crate) stages: Vec<Named<Arc<Stage>>>,
    pub(crate) exit: Arc<FanOut>,
    pub(crate) exit_calls: Calls,
    exporters: Vec<ComponentId>,
    /// The maximum number of pipelines that a batch passes before this one.
    pub(crate) depth: usize,
}

/// A connector and the pipelines that it feeds.
pub(crate) struct PlacedConnector {
    pub(crate) connector: Named<Arc<ConnectorNode>>,
    pipelines: Arc<[PipelineId]>,
    /// The depth of the deepest pipeline before it.
    pub(crate) depth: usize,
}

/// A receiver and its output.
pub(crate) struct ReceiverNode {
    pub(crate) receiver: Named<()>,
    /// `None` if it runs.
    pub(crate) component: Option<Box<dyn Receiver>>,
    pub(crate) next: Arc<FanOut>,
    pub(crate) pipelines: Arc<[PipelineId]>,
    /// Whether it feeds more than one exporter, or destination of one.
    fans_out: bool,
    pub(crate) assigns_ids: Arc<AtomicBool>,
}

/// A component with its display name.
#[derive(Clone)]
pub(crate) struct Named<C> {
    pub(crate) id: String,
    /// `exporter otlp_grpc/backend`
    pub(crate) label: String,
    pub(crate) status: ComponentStatus,
    pub(crate) instance: InstanceId,
    /// Two instances cannot run at the same time.
    pub(crate) is_exclusive: bool,
    pub(crate) calls: Calls,
    origin: Origin,
    pub(crate) component: C,
}

/// What a component was built from. A reload keeps the instance if all of it is unchanged.
#[derive(Clone, PartialEq)]
struct Origin {
    name: &'static str,
    /// `None` never equals another one.
    config: Option<Value>,
    extensions: BTreeMap<ComponentId, InstanceId>,
}

/// Why a component could not be built.
#[derive(Debug, thiserror::Error)]
#[error("failed to build {component}: {reason}")]
pub struct BuildFailure {
    pub component: String,
    #[source]
    pub reason: BuildError,
}

struct Builder<'a> {
    document: &'a Document,
    context: &'a GraphContext,
    /// The running graph, for reloads.
    previous: Option<&'a Graph>,
    offered: Arc<HashMap<ComponentId, Handles>>,
    instances: BTreeMap<ComponentId, InstanceId>,
}

// === impl Graph ===

impl Graph {
    pub fn build(document: &Document, telemetry: &SelfTelemetry) -> Result<Self, BuildFailure> {
        Self::build_with(document, telemetry, Shared::default())
    }

    /// Builds it with handles that the components share.
    pub fn build_with(
        document: &Document,
        telemetry: &SelfTelemetry,
        shared: Shared,
    ) -> Result<Self, BuildFailure> {
        shared.put(telemetry.board.clone());
        shared.put(telemetry.log.clone());
        shared.get::<CurrentService>().set(document.info());
        let context = GraphContext {
            telemetry: telemetry.clone(),
            taps: shared.get(),
            shared,
            admission: Admission::for_available_memory(),
            instances: Arc::default(),
        };
        let graph = Builder::of(document, &context, None).graph()?;
        graph.connect();
        Ok(graph)
    }

    /// The graph of another configuration, with the unchanged components of this one. It is not connected yet.
    pub(crate) fn rebuild(&self, document: &Document) -> Result<Self, BuildFailure> {
        Builder::of(document, &self.context, Some(self)).graph()
    }

    /// Points every component to the next ones, those at the end first: a batch on its way passes each part of a
    /// pipeline either as it was or as it is now.
    pub(crate) fn connect(&self) {
        let mut entrances = HashMap::new();
        for depth in self.depths_from_the_end() {
            for placed in self.connectors.iter().filter(|it| it.depth == depth) {
                let fan_out = placed.connector.component.fan_out();
                fan_out.set(entrances_of(&placed.pipelines, &entrances));
            }
            for route in self.pipelines.iter().filter(|it| it.depth == depth) {
                entrances.insert(&route.id, self.connect_route(route));
            }
        }
        for feed in &self.receivers {
            // Batches get ids before they go to several exporters.
            feed.assigns_ids.store(feed.fans_out, Ordering::Relaxed);
            feed.next.set(entrances_of(&feed.pipelines, &entrances));
        }
    }

    /// The depths of its pipelines, the greatest first.
    pub(crate) fn depths_from_the_end(&self) -> Vec<usize> {
        let depths: BTreeSet<usize> = self.pipelines.iter().map(|route| route.depth).collect();
        depths.into_iter().rev().collect()
    }

    /// Returns the entrance.
    fn connect_route(&self, route: &Route) -> Target {
        route.exit.set(self.destinations(route));
        let mut next = Target::new(
            Arc::clone(&route.exit) as Arc<dyn Consumer>,
            &route.exit_calls,
        );
        for stage in route.stages.iter().rev() {
            stage.component.connect(next);
            let consumer = Arc::clone(&stage.component) as Arc<dyn Consumer>;
            next = Target::new(consumer, &stage.calls);
        }
        next
    }

    /// The consumers after a pipeline's last processor. The document is validated: every id in a pipeline is declared.
    fn destinations(&self, route: &Route) -> Vec<Branch> {
        let by_id = |id: &ComponentId| {
            let id = id.to_string();
            let exporter = self.exporters.iter().find(|named| named.id == id);
            let connector = || {
                let mut connectors = self.connectors.iter();
                let placed = connectors.find(|placed| placed.connector.id == id)?;
                let input = placed.connector.component.input(&route.id);
                Some(Target::new(input, &placed.connector.calls))
            };
            Some(Branch {
                target: exporter.map(Named::target).or_else(connector)?,
                name: id.into(),
            })
        };
        route.exporters.iter().filter_map(by_id).collect()
    }

    /// The handles that the exporter with this id offers to the embedding process.
    pub fn exporter(&self, id: &str) -> Handles {
        let mut handles = Handles::default();
        if let Some(named) = self.exporters.iter().find(|named| named.id == id) {
            named.component.exporter().offer(&mut handles);
        }
        handles
    }

    /// Removes the components that have stopped.
    pub(crate) fn retain(&mut self, runs: impl Fn(&InstanceId) -> bool) {
        self.extensions.retain(|named| runs(&named.instance));
        self.exporters.retain(|named| runs(&named.instance));
        self.connectors
            .retain(|placed| runs(&placed.connector.instance));
        self.receivers.retain(|feed| runs(&feed.receiver.instance));
        for route in &mut self.pipelines {
            route.stages.retain(|named| runs(&named.instance));
        }
    }

    /// All instances.
    pub(crate) fn instances(&self) -> BTreeSet<InstanceId> {
        let stages = self.pipelines.iter().flat_map(|route| &route.stages);
        let extensions = self.extensions.iter().map(|named| named.instance);
        extensions
            .chain(self.exporters.iter().map(|named| named.instance))
            .chain((self.connectors.iter()).map(|placed| placed.connector.instance))
            .chain(stages.map(|named| named.instance))
            .chain(self.receivers.iter().map(|feed| feed.receiver.instance))
            .collect()
    }
}

// === impl Builder ===

impl<'a> Builder<'a> {
    fn of(document: &'a Document, context: &'a GraphContext, previous: Option<&'a Graph>) -> Self {
        Self {
            document,
            context,
            previous,
            offered: Arc::default(),
            instances: BTreeMap::new(),
        }
    }

    fn graph(mut self) -> Result<Graph, BuildFailure> {
        let extensions = self.extensions()?;
        let exporters = self.exporters()?;
        let connectors = self.connectors()?;
        let pipelines = self.pipelines()?;
        let divides = exporters.iter().any(|named| named.component.divides());
        let receivers = self.receivers(divides)?;
        Ok(Graph {
            document: self.document.clone(),
            extensions,
            exporters,
            connectors,
            pipelines,
            receivers,
            context: self.context.clone(),
        })
    }

    fn extensions(&mut self) -> Result<Vec<Named<Arc<dyn Extension>>>, BuildFailure> {
        let mut built = Vec::new();
        let mut offered = HashMap::new();
        for id in &self.document.service.extensions {
            let Some(declared) = find(&self.document.extensions, id) else {
                continue;
            };
            let running = self.previous.map(|graph| &graph.extensions[..]);
            let named = match self.unchanged(declared, running) {
                Some(named) => named,
                None => {
                    let named = self.build(Kind::Extension, declared, &[])?;
                    named.map(Arc::<dyn Extension>::from)
                }
            };
            let mut handles = Handles::default();
            Arc::clone(&named.component).offer(&mut handles);
            offered.insert(id.clone(), handles);
            self.instances.insert(id.clone(), named.instance);
            built.push(named);
        }
        self.offered = Arc::new(offered);
        Ok(built)
    }

    fn exporters(&self) -> Result<Vec<Named<Arc<Sender>>>, BuildFailure> {
        let used =
            |id: &ComponentId| self.pipelines_with(|pipeline| pipeline.exporters.contains(id));
        let declared = self
            .document
            .exporters
            .iter()
            .filter(|declared| used(&declared.id));
        declared.map(|declared| self.exporter(declared)).collect()
    }

    fn exporter(
        &self,
        declared: &Declared<dyn Exporter>,
    ) -> Result<Named<Arc<Sender>>, BuildFailure> {
        let running = self.previous.map(|graph| &graph.exporters[..]);
        if let Some(named) = self.unchanged(declared, running) {
            return Ok(named);
        }
        let mut named = self.build(Kind::Exporter, declared, &[])?;
        let queue = named.component.delivery().queue;
        let storage = queue.and_then(|queue| queue.storage).map(|storage| {
            let extensions = Extensions::new(Arc::clone(&self.offered));
            let found = extensions.get::<Arc<Storage>>(&storage);
            (named.origin).uses(&extensions.used(), &self.instances);
            found
        });
        let storage = storage.transpose().map_err(|reason| BuildFailure {
            component: named.label.clone(),
            reason,
        })?;
        // The queue on disk belongs to one instance.
        named.is_exclusive |= storage.is_some();
        let storage = storage.as_deref().map(Arc::clone);
        let (id, meter) = (named.id.clone(), &self.context.telemetry.meter);
        let (status, taps) = (named.status.clone(), &self.context.taps);
        Ok(named
            .map(|exporter| Sender::new(Arc::from(exporter), &id, meter, &status, storage, taps)))
    }

    /// A connector that feeds other pipelines than before is replaced.
    fn connectors(&self) -> Result<Vec<PlacedConnector>, BuildFailure> {
        let meter = &self.context.telemetry.meter;
        let depths = self.document.depths();
        let mut connectors = Vec::new();
        for declared in &self.document.connectors {
            let pipelines = self.document.service.pipelines.iter();
            let before = pipelines.filter(|it| it.exporters.contains(&declared.id));
            let Some(depth) = before.filter_map(|it| depths.get(&it.id)).max() else {
                continue;
            };
            let fed = self.document.fed_by(&declared.id);
            let fed: Vec<&PipelineId> = fed.map(|pipeline| &pipeline.id).collect();
            let pipelines: Arc<[PipelineId]> = fed.iter().copied().cloned().collect();
            let id = declared.id.to_string();
            let running = self.previous.and_then(|graph| {
                let mut running = graph.connectors.iter();
                running.find(|placed| placed.connector.id == id)
            });
            let kept = running.filter(|placed| {
                placed.pipelines == pipelines && self.is_unchanged(declared, &placed.connector)
            });
            let connector = match kept {
                Some(placed) => placed.connector.clone(),
                None => {
                    // It remembers who has accepted a batch.
                    let fan_out = match running {
                        Some(placed) => placed.connector.component.fan_out(),
                        None => {
                            let tap = self.output_tap(Kind::Connector, &id);
                            FanOut::new(&format!("connector {id}"), meter, Some(tap))
                        }
                    };
                    let named = self.build(Kind::Connector, declared, &fed)?;
                    named.map(|built| ConnectorNode::new(Arc::from(built), &id, meter, fan_out))
                }
            };
            connectors.push(PlacedConnector {
                connector,
                pipelines,
                depth: *depth,
            });
        }
        Ok(connectors)
    }

    fn pipelines(&self) -> Result<Vec<Route>, BuildFailure> {
        let meter = &self.context.telemetry.meter;
        let depths = self.document.depths();
        let mut routes = Vec::new();
        for pipeline in &self.document.service.pipelines {
            let running = self.running(&pipeline.id);
            let kept = self.kept(pipeline, running);
            let mut stages = Vec::new();
            for id in &pipeline.processors {
                let Some(declared) = find(&self.document.processors, id) else {
                    continue;
                };
                let name = id.to_string();
                if let Some(named) = kept.iter().find(|named| named.id == name) {
                    stages.push((*named).clone());
                    continue;
                }
                let named = self.build(Kind::Processor, declared, &[&pipeline.id])?;
                let taps = &self.context.taps;
                stages.push(
                    named.map(|built| {
                        Stage::new(Arc::from(built), &name, &pipeline.id, meter, taps)
                    }),
                );
            }
            let (exit, exit_calls) = match running {
                Some(route) => (Arc::clone(&route.exit), route.exit_calls.clone()),
                None => {
                    let name = format!("pipeline {}", pipeline.id);
                    (FanOut::new(&name, meter, None), Calls::default())
                }
            };
            routes.push(Route {
                id: pipeline.id.clone(),
                stages,
                exit,
                exit_calls,
                exporters: pipeline.exporters.clone(),
                depth: depths.get(&pipeline.id).copied().unwrap_or_default(),
            });
        }
        Ok(routes)
    }

    fn running(&self, pipeline: &PipelineId) -> Option<&'a Route> {
        let mut running = self.previous?.pipelines.iter();
        running.find(|route| route.id == *pipeline)
    }

    /// The running processors that a pipeline keeps. If their order has changed, none: a batch on its way would pass
    /// one twice or not at all.
    fn kept(&self, pipeline: &Pipeline, running: Option<&'a Route>) -> Vec<Named<Arc<Stage>>> {
        let running = running.map(|route| &route.stages[..]);
        let declared = pipeline.processors.iter();
        let kept: Vec<_> = declared
            .filter_map(|id| {
                let declared = find(&self.document.processors, id)?;
                self.unchanged(declared, running)
            })
            .collect();
        let positions = kept.iter().map(|named| {
            let mut running = running.into_iter().flatten();
            running.position(|other| other.instance == named.instance)
        });
        match positions.is_sorted() {
            true => kept,
            false => Vec::new(),
        }
    }

    fn receivers(&self, divides: bool) -> Result<Vec<ReceiverNode>, BuildFailure> {
        let mut receivers = Vec::new();
        for declared in &self.document.receivers {
            let fed = self.document.fed_by(&declared.id);
            let fed: Vec<&PipelineId> = fed.map(|pipeline| &pipeline.id).collect();
            if fed.is_empty() {
                continue;
            }
            let pipelines = fed.iter().copied().cloned().collect();
            let fans_out = divides || self.document.count_exporter_paths(fed.iter().copied()) > 1;
            let running = self.previous.and_then(|graph| {
                let mut running = graph.receivers.iter();
                running.find(|feed| self.is_unchanged(declared, &feed.receiver))
            });
            if let Some(feed) = running {
                receivers.push(ReceiverNode {
                    receiver: feed.receiver.clone(),
                    component: None,
                    next: Arc::clone(&feed.next),
                    pipelines,
                    fans_out,
                    assigns_ids: Arc::clone(&feed.assigns_ids),
                });
                continue;
            }
            let mut component = None;
            let receiver = self.build(Kind::Receiver, declared, &fed)?;
            let receiver = receiver.map(|built| component = Some(built));
            let tap = self.output_tap(Kind::Receiver, &receiver.id);
            receivers.push(ReceiverNode {
                next: FanOut::new(&receiver.label, &self.context.telemetry.meter, Some(tap)),
                receiver,
                component,
                pipelines,
                fans_out,
                assigns_ids: Arc::default(),
            });
        }
        Ok(receivers)
    }

    /// Where the batches of a receiver or connector go out, to all pipelines.
    fn output_tap(&self, kind: Kind, id: &str) -> Arc<Tap> {
        self.context.taps.tap(TapPoint {
            kind,
            id: id.to_owned(),
            pipeline: None,
            side: Side::Output,
        })
    }

    /// The running instance of a component, if nothing about it has changed.
    fn unchanged<K: ?Sized, C: Clone>(
        &self,
        declared: &Declared<K>,
        running: Option<&[Named<C>]>,
    ) -> Option<Named<C>> {
        let mut running = running.into_iter().flatten();
        running
            .find(|named| self.is_unchanged(declared, named))
            .cloned()
    }

    fn is_unchanged<K: ?Sized, C>(&self, declared: &Declared<K>, running: &Named<C>) -> bool {
        let origin = &running.origin;
        running.id == declared.id.to_string()
            && origin.name == declared.entry.name
            && origin.config.is_some()
            && origin.config == declared.config.resolved().ok()
            && (origin.extensions.iter())
                .all(|(id, instance)| self.instances.get(id) == Some(instance))
    }

    fn build<K: ?Sized>(
        &self,
        kind: Kind,
        declared: &Declared<K>,
        pipelines: &[&PipelineId],
    ) -> Result<Named<Box<K>>, BuildFailure> {
        let id = declared.id.to_string();
        let pipeline = match (kind, pipelines) {
            (Kind::Processor, [pipeline]) => Some(*pipeline),
            _ => None,
        };
        let label = match pipeline {
            None => format!("{kind} {id}"),
            Some(pipeline) => format!("{kind} {id} in pipeline {pipeline}"),
        };
        let GraphContext {
            telemetry,
            shared,
            taps: _,
            admission,
            instances,
        } = self.context;
        let status = match self.previous {
            None => telemetry.board.component(label.clone()),
            // The entry belongs to the running instance.
            Some(_) => telemetry.board.hidden_component(label.clone()),
        };
        status.set(Status::Starting);
        let instance = InstanceId(instances.fetch_add(1, Ordering::Relaxed));
        let extensions = Extensions::new(Arc::clone(&self.offered));
        let context = BuildContext {
            id: declared.id.clone(),
            pipelines: pipelines.iter().copied().cloned().collect(),
            meter: telemetry.meter.clone(),
            status: status.clone(),
            shared: shared.clone(),
            admission: admission.clone(),
            extensions: extensions.clone(),
            instance,
        };
        let entry: &Entry<K> = declared.entry;
        let built = (entry.build)(&*declared.config, &context);
        let component = built.map_err(|reason| BuildFailure {
            component: label.clone(),
            reason,
        })?;
        let mut origin = Origin {
            name: entry.name,
            config: declared.config.resolved().ok(),
            extensions: BTreeMap::new(),
        };
        origin.uses(&extensions.used(), &self.instances);
        Ok(Named {
            id,
            label,
            status,
            instance,
            is_exclusive: entry.is_exclusive,
            calls: Calls::default(),
            origin,
            component,
        })
    }

    fn pipelines_with(&self, condition: impl Fn(&Pipeline) -> bool) -> bool {
        self.document.service.pipelines.iter().any(condition)
    }
}

/// The entrances of these pipelines.
fn entrances_of(pipelines: &[PipelineId], entrances: &HashMap<&PipelineId, Target>) -> Vec<Branch> {
    let branch = |pipeline: &PipelineId| {
        let target = entrances.get(pipeline)?.clone();
        let name = pipeline.to_string().into();
        Some(Branch { name, target })
    };
    pipelines.iter().filter_map(branch).collect()
}

fn find<'a, C: ?Sized>(declared: &'a [Declared<C>], id: &ComponentId) -> Option<&'a Declared<C>> {
    declared.iter().find(|declared| declared.id == *id)
}

// === impl Origin ===

impl Origin {
    fn uses(&mut self, used: &[ComponentId], running: &BTreeMap<ComponentId, InstanceId>) {
        for id in used {
            if let Some(instance) = running.get(id) {
                self.extensions.insert(id.clone(), *instance);
            }
        }
    }
}

// === impl Named ===

impl Named<Arc<Sender>> {
    pub(crate) fn target(&self) -> Target {
        let consumer = Arc::clone(&self.component) as Arc<dyn Consumer>;
        Target::new(consumer, &self.calls)
    }
}

impl<C> Named<C> {
    pub(crate) fn map<D>(self, change: impl FnOnce(C) -> D) -> Named<D> {
        let Self {
            id,
            label,
            status,
            instance,
            is_exclusive,
            calls,
            origin,
            component,
        } = self;
        Named {
            id,
            label,
            status,
            instance,
            is_exclusive,
            calls,
            origin,
            component: change(component),
        }
    }
}
