//! Builds and connects the components of a configuration, without starting them.
//!
//! Receivers, exporters and extensions have one instance per id, processors one per pipeline. Only components used by
//! the service are built.

mod check;
mod fan_out;
mod pipeline;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::sync::Arc;

use profcol_admission::Admission;
use profcol_component::{
    BuildContext, BuildError, ComponentStatus, Consumer, Entry, Exporter, Extension, Handles, Kind,
    Meter, Receiver, SelfTelemetry, Shared, Status, extension,
};
use profcol_config::{ComponentId, PipelineId};
use profcol_storage::Storage;

pub use self::check::ComponentChecks;
use self::fan_out::FanOut;
pub use self::pipeline::ProcessorBalance;
pub(crate) use self::pipeline::Stage;
use crate::document::{Declared, Document, Pipeline};
use crate::sender::Sender;

/// Connected components, in start order.
pub struct Graph {
    pub(crate) extensions: Vec<Named<Arc<dyn Extension>>>,
    pub(crate) exporters: Vec<Named<Arc<Sender>>>,
    /// By position in the pipeline.
    pub(crate) processors: Vec<Vec<Named<Arc<Stage>>>>,
    pub(crate) receivers: Vec<Feed>,
}

/// A receiver and its output.
pub(crate) struct Feed {
    pub(crate) receiver: Named<Box<dyn Receiver>>,
    pub(crate) next: Arc<dyn Consumer>,
    /// Whether it feeds more than one exporter.
    pub(crate) fans_out: bool,
}

/// The processors of all pipelines, and each pipeline's first consumer.
struct Pipelines {
    by_position: Vec<Vec<Named<Arc<Stage>>>>,
    entrances: HashMap<PipelineId, Arc<dyn Consumer>>,
}

/// A component with its display name.
pub(crate) struct Named<C> {
    pub(crate) id: String,
    /// `exporter otlp_grpc/backend`
    pub(crate) label: String,
    pub(crate) status: ComponentStatus,
    pub(crate) component: C,
}

/// Why a component could not be built.
#[derive(Debug, thiserror::Error)]
#[error("failed to build {component}: {reason}")]
pub struct BuildFailure {
    pub component: String,
    pub reason: BuildError,
}

struct Builder<'a> {
    document: &'a Document,
    meter: &'a Meter,
    telemetry: &'a SelfTelemetry,
    shared: Shared,
    admission: Admission,
    extensions: Arc<HashMap<ComponentId, Handles>>,
}

// === impl Graph ===

impl Graph {
    pub fn build(document: &Document, telemetry: &SelfTelemetry) -> Result<Self, BuildFailure> {
        let shared = Shared::default();
        shared.put(telemetry.board.clone());
        shared.put(telemetry.log.clone());
        shared.put(Arc::new(document.info()));
        let mut builder = Builder {
            document,
            meter: &telemetry.meter,
            telemetry,
            shared,
            admission: Admission::for_available_memory(),
            extensions: Arc::default(),
        };
        let extensions = builder.extensions()?;
        let exporters = builder.exporters()?;
        let pipelines = builder.pipelines(&exporters)?;
        let receivers = builder.receivers(&pipelines)?;
        let processors = pipelines.by_position;
        Ok(Self {
            extensions,
            exporters,
            processors,
            receivers,
        })
    }

    /// The handles that the exporter with this id offers to the embedding process.
    pub fn exporter(&self, id: &str) -> Handles {
        let mut handles = Handles::default();
        if let Some(named) = self.exporters.iter().find(|named| named.id == id) {
            named.component.exporter().offer(&mut handles);
        }
        handles
    }
}

// === impl Builder ===

impl Builder<'_> {
    fn extensions(&mut self) -> Result<Vec<Named<Arc<dyn Extension>>>, BuildFailure> {
        let mut built = Vec::new();
        let mut offered = HashMap::new();
        for id in &self.document.service.extensions {
            let Some(declared) = find(&self.document.extensions, id) else {
                continue;
            };
            let named = self.build(Kind::Extension, declared, &[])?;
            let named = named.map(Arc::<dyn Extension>::from);
            let mut handles = Handles::default();
            Arc::clone(&named.component).offer(&mut handles);
            offered.insert(id.clone(), handles);
            built.push(named);
        }
        self.extensions = Arc::new(offered);
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
        let build = |declared: &Declared<dyn Exporter>| {
            let named = self.build(Kind::Exporter, declared, &[])?;
            let id = named.id.clone();
            let label = named.label.clone();
            let delivery = named.component.delivery();
            let storage = delivery.queue.and_then(|queue| queue.storage);
            let storage =
                storage.map(|storage| extension::<Arc<Storage>>(&self.extensions, &storage));
            let storage = storage.transpose().map_err(|reason| BuildFailure {
                component: label,
                reason,
            })?;
            let storage = storage.as_deref().map(Arc::clone);
            Ok(named.map(|exporter| Sender::new(Arc::from(exporter), &id, self.meter, storage)))
        };
        declared.map(build).collect()
    }

    fn pipelines(&self, exporters: &[Named<Arc<Sender>>]) -> Result<Pipelines, BuildFailure> {
        let mut by_position: Vec<Vec<Named<Arc<Stage>>>> = Vec::new();
        let mut entrances = HashMap::new();
        for pipeline in &self.document.service.pipelines {
            let name = format!("pipeline {}", pipeline.id);
            let mut next = FanOut::to(destinations(pipeline, exporters), &name, self.meter);
            for (position, id) in pipeline.processors.iter().enumerate().rev() {
                let Some(declared) = find(&self.document.processors, id) else {
                    continue;
                };
                let named = self.build(Kind::Processor, declared, &[&pipeline.id])?;
                let (id, downstream) = (named.id.clone(), next);
                let named =
                    named.map(|built| Stage::new(Arc::from(built), &id, downstream, self.meter));
                next = Arc::clone(&named.component) as Arc<dyn Consumer>;
                if by_position.len() <= position {
                    by_position.resize_with(position + 1, Vec::new);
                }
                by_position[position].push(named);
            }
            entrances.insert(pipeline.id.clone(), next);
        }
        Ok(Pipelines {
            by_position,
            entrances,
        })
    }

    fn receivers(&self, pipelines: &Pipelines) -> Result<Vec<Feed>, BuildFailure> {
        let mut receivers = Vec::new();
        for declared in &self.document.receivers {
            let fed = (self.document.service.pipelines.iter())
                .filter(|pipeline| pipeline.receivers.contains(&declared.id));
            let exporters: usize = fed.clone().map(|pipeline| pipeline.exporters.len()).sum();
            let (fed, entrances): (Vec<_>, Vec<_>) = fed
                .filter_map(|pipeline| {
                    let entrance = pipelines.entrances.get(&pipeline.id)?;
                    Some((&pipeline.id, Arc::clone(entrance)))
                })
                .unzip();
            if fed.is_empty() {
                continue;
            }
            let receiver = self.build(Kind::Receiver, declared, &fed)?;
            let next = FanOut::to(entrances, &receiver.label, self.meter);
            receivers.push(Feed {
                receiver,
                next,
                fans_out: exporters > 1,
            });
        }
        Ok(receivers)
    }

    fn build<C: ?Sized>(
        &self,
        kind: Kind,
        declared: &Declared<C>,
        pipelines: &[&PipelineId],
    ) -> Result<Named<Box<C>>, BuildFailure> {
        let id = declared.id.to_string();
        let pipeline = match (kind, pipelines) {
            (Kind::Processor, [pipeline]) => Some(*pipeline),
            _ => None,
        };
        let label = match pipeline {
            None => format!("{kind} {id}"),
            Some(pipeline) => format!("{kind} {id} in pipeline {pipeline}"),
        };
        let status = self.telemetry.board.component(label.clone());
        status.set(Status::Starting);
        let context = BuildContext {
            id: declared.id.clone(),
            pipelines: pipelines.iter().copied().cloned().collect(),
            meter: self.meter.clone(),
            status: status.clone(),
            shared: self.shared.clone(),
            admission: self.admission.clone(),
            extensions: Arc::clone(&self.extensions),
        };
        let entry: &Entry<C> = declared.entry;
        match (entry.build)(&*declared.config, &context) {
            Ok(component) => Ok(Named {
                id,
                label,
                status,
                component,
            }),
            Err(reason) => Err(BuildFailure {
                component: label,
                reason,
            }),
        }
    }

    fn pipelines_with(&self, condition: impl Fn(&Pipeline) -> bool) -> bool {
        self.document.service.pipelines.iter().any(condition)
    }
}

/// The consumers after a pipeline's last processor. The document is validated: every id in a pipeline is declared.
fn destinations(pipeline: &Pipeline, exporters: &[Named<Arc<Sender>>]) -> Vec<Arc<dyn Consumer>> {
    let by_id = |id: &ComponentId| {
        let id = id.to_string();
        let named = exporters.iter().find(|named| named.id == id)?;
        Some(Arc::clone(&named.component) as Arc<dyn Consumer>)
    };
    pipeline.exporters.iter().filter_map(by_id).collect()
}

fn find<'a, C: ?Sized>(declared: &'a [Declared<C>], id: &ComponentId) -> Option<&'a Declared<C>> {
    declared.iter().find(|declared| declared.id == *id)
}

// === impl Named ===

impl<C> Named<C> {
    fn map<D>(self, change: impl FnOnce(C) -> D) -> Named<D> {
        let Self {
            id,
            label,
            status,
            component,
        } = self;
        Named {
            id,
            label,
            status,
            component: change(component),
        }
    }
}
