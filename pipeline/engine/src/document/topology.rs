//! How connectors join pipelines.

use std::collections::{BTreeMap, HashSet};

use profcol_config::{ComponentId, PipelineId};

use super::{Document, Pipeline};

impl Document {
    pub(crate) fn is_connector(&self, id: &ComponentId) -> bool {
        self.connectors.iter().any(|declared| declared.id == *id)
    }

    /// The connectors at the end of a pipeline.
    pub(crate) fn connectors_of<'a>(
        &'a self,
        pipeline: &'a Pipeline,
    ) -> impl Iterator<Item = &'a ComponentId> {
        let ids = pipeline.exporters.iter();
        ids.filter(|id| self.is_connector(id))
    }

    /// The pipelines that a receiver or a connector feeds.
    pub(crate) fn fed_by<'a>(&'a self, id: &'a ComponentId) -> impl Iterator<Item = &'a Pipeline> {
        let pipelines = self.service.pipelines.iter();
        pipelines.filter(|pipeline| pipeline.receivers.contains(id))
    }

    /// The next pipelines, each with the connector before it.
    fn following<'a>(
        &'a self,
        pipeline: &'a Pipeline,
    ) -> impl Iterator<Item = (&'a ComponentId, &'a Pipeline)> {
        let connectors = self.connectors_of(pipeline);
        connectors.flat_map(|id| self.fed_by(id).map(move |next| (id, next)))
    }

    /// The pipelines that a batch in this one may get to, with itself.
    pub(super) fn reachable_from<'a>(&'a self, pipeline: &'a Pipeline) -> Vec<&'a Pipeline> {
        let mut reached = vec![pipeline];
        let mut seen = 0;
        while let Some(pipeline) = reached.get(seen).copied() {
            for (_, next) in self.following(pipeline) {
                if reached.iter().all(|it| it.id != next.id) {
                    reached.push(next);
                }
            }
            seen += 1;
        }
        reached
    }

    /// The maximum number of pipelines that a batch passes before each of them.
    pub(crate) fn depths(&self) -> BTreeMap<&PipelineId, usize> {
        let pipelines = &self.service.pipelines;
        let mut depths: BTreeMap<_, _> = pipelines.iter().map(|it| (&it.id, 0)).collect();
        // Each round completes at least one more depth, as there are no cycles.
        for _ in pipelines {
            for pipeline in pipelines {
                let below = depths.get(&pipeline.id).map_or(0, |depth| depth + 1);
                for (_, next) in self.following(pipeline) {
                    let depth = depths.entry(&next.id).or_default();
                    *depth = below.max(*depth);
                }
            }
        }
        depths
    }

    /// The number of exporters that a batch in these pipelines gets to, counted once per path.
    pub(crate) fn count_exporter_paths<'a>(
        &self,
        pipelines: impl IntoIterator<Item = &'a PipelineId>,
    ) -> usize {
        let mut paths: BTreeMap<&PipelineId, usize> = BTreeMap::new();
        let depths = self.depths();
        let mut deepest_first: Vec<&Pipeline> = self.service.pipelines.iter().collect();
        deepest_first.sort_by_key(|pipeline| std::cmp::Reverse(depths.get(&pipeline.id)));
        for pipeline in deepest_first {
            let exporters = pipeline.exporters.len() - self.connectors_of(pipeline).count();
            let following = self.following(pipeline);
            let below = following.map(|(_, next)| paths.get(&next.id).copied().unwrap_or_default());
            paths.insert(&pipeline.id, below.fold(exporters, usize::saturating_add));
        }
        let paths = pipelines
            .into_iter()
            .map(|id| paths.get(id).copied().unwrap_or_default());
        paths.fold(0, usize::saturating_add)
    }

    /// Pipelines that lead to each other in a circle, each with the connector after it.
    pub(super) fn cycle(&self) -> Option<Vec<(&Pipeline, &ComponentId)>> {
        let mut left: Vec<&Pipeline> = self.service.pipelines.iter().collect();
        let mut ids: HashSet<&PipelineId> = left.iter().map(|pipeline| &pipeline.id).collect();
        loop {
            // Those that lead out of the cycles, or to nothing.
            left.retain(|pipeline| self.following(pipeline).any(|(_, it)| ids.contains(&it.id)));
            if left.len() == ids.len() {
                break;
            }
            ids = left.iter().map(|pipeline| &pipeline.id).collect();
        }
        let mut at = *left.first()?;
        let mut path: Vec<(&Pipeline, &ComponentId)> = Vec::new();
        loop {
            if let Some(start) = path.iter().position(|(passed, _)| passed.id == at.id) {
                return Some(path.split_off(start));
            }
            let (connector, next) = (self.following(at)).find(|(_, it)| ids.contains(&it.id))?;
            path.push((at, connector));
            at = next;
        }
    }
}
