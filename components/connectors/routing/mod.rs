//! Routes the profiles of each resource to pipelines by its attributes.
//!
//! Only resources are read, unless a batch has to be split.

mod condition;
mod config;
mod error;
mod lexer;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;
use profcol_component::{
    Answer, Batch, BuildContext, BuildError, Connector, Factory, IntCounter, Outcome, Pipelines,
    Refusal, Stability,
};
use profcol_config::PipelineId;
use profcol_profile::{Attributes, Profiles};

use self::condition::{Condition, EvaluationError};
pub use self::config::{ErrorMode, RouteConfig, RoutingConfig};

pub struct Routing {
    id: String,
    routes: Vec<Route>,
    default: Vec<PipelineId>,
    error_mode: ErrorMode,
    dropped: IntCounter,
    dropped_source_samples: AtomicU64,
}

struct Route {
    condition: Condition,
    pipelines: Vec<PipelineId>,
}

impl Factory for Routing {
    const NAME: &'static str = "routing";
    const STABILITY: Stability = Stability::Alpha;
    type Config = RoutingConfig;
    type Component = dyn Connector;

    fn pipelines(config: &RoutingConfig) -> Vec<(String, PipelineId)> {
        config.named_pipelines()
    }

    fn build(
        config: &RoutingConfig,
        context: &BuildContext,
    ) -> Result<Box<dyn Connector>, BuildError> {
        Ok(Box::new(Routing::new(config, context)?))
    }
}

impl Routing {
    fn new(config: &RoutingConfig, context: &BuildContext) -> Result<Self, BuildError> {
        let id = context.id.to_string();
        let route = |route: &RouteConfig| {
            Ok(Route {
                condition: route.parsed().map_err(BuildError::new)?,
                pipelines: route.pipelines.clone(),
            })
        };
        Ok(Self {
            routes: config.table.iter().map(route).collect::<Result<_, _>>()?,
            default: config.default_pipelines.clone(),
            error_mode: config.error_mode,
            dropped: context.meter.counter(
                "profcol_routing_dropped_samples",
                "Samples dropped by the routing connector.",
                &[("connector", &id), ("reason", "no_route")],
            ),
            dropped_source_samples: AtomicU64::new(0),
            id,
        })
    }

    /// The pipelines of a resource.
    fn pipelines_for(&self, attributes: &Attributes) -> Result<&[PipelineId], EvaluationError> {
        for Route {
            condition,
            pipelines,
        } in &self.routes
        {
            match condition.holds(attributes) {
                Ok(true) => return Ok(pipelines),
                Ok(false) => {}
                Err(error) => match self.error_mode {
                    ErrorMode::Propagate => return Err(error),
                    ErrorMode::Ignore => {
                        tracing::warn!(
                            otelcol.component.id = %self.id,
                            otelcol.component.kind = "connector",
                            error = %error,
                            "A routing condition failed. The resource goes to the default pipelines."
                        );
                        break;
                    }
                    ErrorMode::Silent => break,
                },
            }
        }
        Ok(&self.default)
    }
}

#[async_trait]
impl Connector for Routing {
    async fn process(&self, mut batch: Batch, next: &dyn Pipelines) -> Answer {
        let resources = batch.profiles.resources();
        let pipelines = resources
            .iter()
            .map(|it| self.pipelines_for(&it.attributes));
        let pipelines: Result<Vec<&[PipelineId]>, _> = pipelines.collect();
        let pipelines = match pipelines {
            Ok(pipelines) => pipelines,
            Err(error) => return batch.refuse(Refusal::permanent(error)),
        };
        if let [first, others @ ..] = &pipelines[..]
            && !first.is_empty()
            && others.iter().all(|other| other == first)
        {
            return next.push(batch, first).await;
        }
        let (parts, dropped) = parts_of(&batch.profiles, &pipelines);
        let dropped = dropped.map(|profiles| {
            let dropped = batch.detached().with_profiles(profiles);
            let samples = dropped.profiles.sample_count() as u64;
            (samples, dropped.source_samples())
        });
        let answer = match parts.is_empty() {
            true => {
                std::mem::take(&mut batch.finalizers).settle(Outcome::Delivered);
                Ok(())
            }
            false => next.push_parts(batch, parts).await,
        };
        // A refused batch is sent again.
        if let (Ok(()), Some((samples, source_samples))) = (&answer, dropped) {
            self.dropped.inc_by(samples);
            self.dropped_source_samples
                .fetch_add(source_samples, Ordering::Relaxed);
        }
        answer
    }

    fn removed_samples(&self) -> u64 {
        self.dropped_source_samples.load(Ordering::Relaxed)
    }
}

/// The part of each pipeline, and the rest, which matches no route.
fn parts_of(
    profiles: &Profiles,
    pipelines: &[&[PipelineId]],
) -> (Vec<(PipelineId, Profiles)>, Option<Profiles>) {
    let mut rows: BTreeMap<&PipelineId, Vec<usize>> = BTreeMap::new();
    let mut dropped = Vec::new();
    for (row, pipelines) in pipelines.iter().enumerate() {
        if pipelines.is_empty() {
            dropped.push(row);
        }
        for pipeline in *pipelines {
            let rows = rows.entry(pipeline).or_default();
            if rows.last() != Some(&row) {
                rows.push(row);
            }
        }
    }
    // Pipelines with the same resources share them.
    let groups: BTreeSet<&[usize]> = rows.values().map(Vec::as_slice).collect();
    let parts = profiles.parts(groups.iter().copied());
    let parts: BTreeMap<&[usize], Profiles> = groups.into_iter().zip(parts).collect();
    let parts = rows.iter().filter_map(|(pipeline, rows)| {
        let part = parts.get(rows.as_slice())?;
        Some(((*pipeline).clone(), part.clone()))
    });
    let parts = parts.collect();
    let dropped = (!dropped.is_empty()).then(|| profiles.part(&dropped));
    (parts, dropped)
}
