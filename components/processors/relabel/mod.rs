//! Changes and drops resources by Prometheus' relabel rules, which see attributes as labels.
//!
//! Rules are applied once to each set of attributes, and the result is cached. If the resource alone decides that a
//! process is dropped, the receiver gets drop feedback.

mod decision_cache;
mod samples;
#[cfg(test)]
mod tests;

use std::sync::{Arc, OnceLock};

use async_trait::async_trait;
use profcol_component::{
    Answer, Batch, BuildContext, BuildError, Consumer, DropFeedback, DropReporter, Factory,
    IntCounter, Processor, SampledProcess, Stability, StartError,
};
use profcol_labels::{RelabelConfig, Rule};
use profcol_metadata::attributes::{PID, find};
use profcol_profile::{Attributes, Profiles, Resource, ResourceProfiles, SharedResource};

use self::decision_cache::{CachedDecision, DecisionCache};
use self::samples::SampleRelabeler;
use crate::shared::remainder::push_remainder;
use crate::shared::sampled_processes::sampled_processes;

pub struct RelabelProcessor {
    config: RelabelConfig,
    /// Set at startup: rules may come from a file.
    rules: OnceLock<Arc<[Rule]>>,
    memory: DecisionCache,
    /// Present if a rule may drop.
    drop_reporter: Option<DropReporter>,
    dropped_samples: IntCounter,
    applied: IntCounter,
}

/// The result for a batch that is partly dropped.
#[derive(Default)]
struct Filtered {
    resources: Vec<ResourceProfiles>,
    dropped_samples: usize,
    /// Processes that are dropped whatever attributes are added later.
    processes: Vec<SampledProcess>,
    /// The dropped resources, with the position of the rule.
    dropped: Vec<(Option<Arc<Resource>>, usize)>,
}

impl Factory for RelabelProcessor {
    const NAME: &'static str = "relabel";
    const STABILITY: Stability = Stability::Alpha;
    type Config = RelabelConfig;
    type Component = dyn Processor;

    fn build(
        config: &RelabelConfig,
        context: &BuildContext,
    ) -> Result<Box<dyn Processor>, BuildError> {
        Ok(Box::new(RelabelProcessor::new(config, context)))
    }
}

impl RelabelProcessor {
    fn new(config: &RelabelConfig, context: &BuildContext) -> Self {
        let id = context.id.to_string();
        let counter = |name, help| context.meter.counter(name, help, &[("processor", &id)]);
        let may_drop = config.may_drop();
        Self {
            config: config.clone(),
            rules: OnceLock::new(),
            memory: DecisionCache::new(config.leftovers()),
            drop_reporter: may_drop.then(|| DropFeedback::of(context).reporter()),
            dropped_samples: counter(
                "profcol_relabel_dropped_samples",
                "Samples dropped by a rule.",
            ),
            applied: counter(
                "profcol_relabel_applied",
                "Label sets evaluated against the rules.",
            ),
        }
    }

    /// The verdict for each resource, in order.
    fn verdicts(&self, resources: &[SharedResource]) -> Vec<CachedDecision> {
        let rules = self.rules.get().map_or(&[][..], |rules| rules);
        self.memory
            .verdicts(rules, resources, || self.applied.inc())
    }

    /// Tells people which rule drops the process.
    fn explain(&self, reporter: &DropReporter, resource: Option<&Arc<Resource>>, rule: usize) {
        let Some(resource) = resource else {
            return;
        };
        let pid = find(&resource.attributes, PID).and_then(|pid| pid.as_int());
        let rules = self.rules.get().map_or(&[][..], |rules| rules);
        if let (Some(pid), Some(written)) = (pid, rules.get(rule)) {
            let reason = || format!("rule {}: {written}", rule + 1);
            reporter.explain_drop(pid, resource, reason);
        }
    }

    fn verdict(&self, attributes: &Attributes) -> CachedDecision {
        let resource = SharedResource::new(Resource {
            attributes: attributes.clone(),
            ..Resource::default()
        });
        let verdict = self.verdicts(&[resource]).pop();
        verdict.unwrap_or(CachedDecision::Keep(None))
    }
}

impl RelabelProcessor {
    /// Applies rules that also look at samples. Resources that are dropped regardless of samples are dropped whole.
    async fn process_samples(&self, batch: Batch, next: &dyn Consumer) -> Answer {
        let model = batch.profiles.model();
        let mut filter =
            SampleRelabeler::new(&self.config.sample_labels, &model.dictionary, |labels| {
                self.verdict(labels)
            });
        for row in &model.resources {
            filter.take(row);
            let attributes = row.resource.as_ref().map(|it| &it.attributes);
            if let Some(drop_reporter) = &self.drop_reporter
                && let Some(attributes) = attributes
                && let CachedDecision::Drop {
                    is_final: true,
                    rule,
                } = self.verdict(attributes)
            {
                self.explain(drop_reporter, row.resource.as_ref(), rule);
                sampled_processes(row).for_each(|process| drop_reporter.report_drop(process));
            }
        }
        let dropped_samples = filter.dropped_samples as u64;
        let Some(remaining) = filter.finish() else {
            return next.consume(batch).await;
        };
        let answer = push_remainder(batch, remaining, next).await;
        if answer.is_ok() {
            self.dropped_samples.inc_by(dropped_samples);
        }
        answer
    }
}

impl Filtered {
    fn new(profiles: &Profiles, verdicts: Vec<CachedDecision>) -> Self {
        let mut filtered = Self::default();
        for (row, verdict) in profiles.model().resources.iter().zip(verdicts) {
            match verdict {
                CachedDecision::Keep(new) => {
                    let mut row = row.clone();
                    if let Some(new) = new {
                        row.resource = Some(new.content());
                    }
                    filtered.resources.push(row);
                }
                CachedDecision::Drop { rule, is_final } => {
                    filtered.dropped.push((row.resource.clone(), rule));
                    let profiles = row.scopes.iter().flat_map(|scope| &scope.profiles);
                    filtered.dropped_samples += profiles.map(|it| it.samples.len()).sum::<usize>();
                    if is_final {
                        filtered.processes.extend(sampled_processes(row));
                    }
                }
            }
        }
        filtered
    }
}

#[async_trait]
impl Processor for RelabelProcessor {
    async fn start(&self) -> Result<(), StartError> {
        let rules = self.config.rules().map_err(StartError::new)?;
        self.rules.get_or_init(|| rules.into());
        Ok(())
    }

    async fn process(&self, mut batch: Batch, next: &dyn Consumer) -> Answer {
        if !self.config.sample_labels.is_empty() {
            return self.process_samples(batch, next).await;
        }
        let verdicts = self.verdicts(&batch.profiles.resources());
        if !verdicts.iter().any(CachedDecision::is_drop) {
            let new = verdicts.into_iter().map(CachedDecision::into_new);
            batch.profiles.replace_resources(new.collect());
            return next.consume(batch).await;
        }
        let filtered = Filtered::new(&batch.profiles, verdicts);
        if let Some(drop_reporter) = &self.drop_reporter {
            for &process in &filtered.processes {
                drop_reporter.report_drop(process);
            }
            for (resource, rule) in &filtered.dropped {
                self.explain(drop_reporter, resource.as_ref(), *rule);
            }
        }
        let remaining = batch.profiles.model().with_resources(filtered.resources);
        let answer = push_remainder(batch, remaining, next).await;
        if answer.is_ok() {
            self.dropped_samples.inc_by(filtered.dropped_samples as u64);
        }
        answer
    }
}
