//! Valid configurations that may not do what the user expects.

use std::collections::BTreeSet;

use profcol_config::ComponentId;
use serde_json::Value;

use super::{Document, Pipeline};

impl Document {
    /// What the user should reconsider, for the log.
    pub fn warnings(&self) -> Vec<String> {
        let mut found = Vec::new();
        for pipeline in &self.service.pipelines {
            let early = pipeline.processors.iter().filter(|id| self.is_early(id));
            for processor in early {
                for exporter in self.stored_after(pipeline) {
                    found.push(format!(
                        "pipeline {:?}: the processor {:?} accepts batches before the stored queue of the exporter {:?} has them, so a crash loses those that it holds; remove it and set `sending_queue::batch` of the exporter instead",
                        pipeline.id.to_string(),
                        processor.to_string(),
                        exporter.to_string(),
                    ));
                }
            }
        }
        found
    }

    /// Whether this processor answers before the next component has the batch.
    fn is_early(&self, id: &ComponentId) -> bool {
        let mut declared = self.processors.iter();
        declared.any(|it| it.id == *id && it.entry.answers_early)
    }

    /// The exporters with a stored queue that a batch in this pipeline gets to.
    fn stored_after<'a>(&'a self, pipeline: &'a Pipeline) -> BTreeSet<&'a ComponentId> {
        let exporters = self.exporters.iter();
        let stored = exporters.filter(|it| it.config.resolved().is_ok_and(|it| has_storage(&it)));
        let stored: BTreeSet<&ComponentId> = stored.map(|it| &it.id).collect();
        let mut reached = BTreeSet::new();
        for pipeline in self.reachable_from(pipeline) {
            let here = pipeline.exporters.iter();
            reached.extend(here.filter(|id| stored.contains(id)));
        }
        reached
    }
}

/// Whether these settings of an exporter have `sending_queue::storage`, directly or for its destinations.
fn has_storage(settings: &Value) -> bool {
    let Some(map) = settings.as_object() else {
        return false;
    };
    let queue = map.get("sending_queue");
    let storage = queue.and_then(|queue| queue.get("storage"));
    storage.is_some_and(|id| !id.is_null()) || map.values().any(has_storage)
}
