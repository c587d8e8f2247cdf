//! Changes and drops by Prometheus' relabel rules, which see attributes as labels.
//!
//! Rules are about resources: they are applied once to each set of attributes, and what they did is
//! remembered. A process that is dropped by what it is would be sampled for nothing: the receiver
//! that samples it is told.

mod config;
mod memory;
mod samples;
#[cfg(test)]
mod tests;

use std::sync::{Arc, OnceLock};

use async_trait::async_trait;
use profcol_component::{
    Answer, Batch, BuildContext, BuildError, Consumer, DropReporter, Factory, IntCounter,
    Processor, SampledProcess, Stability, StartError,
};
use profcol_labels::{Leftovers, Rule};
use profcol_profile::{Attributes, Profiles, Resource, ResourceProfiles, SharedResource};

pub use self::config::{RelabelConfig, RuleConfig};
use self::memory::{Memory, Verdict};
use self::samples::SampleFilter;
use crate::shared::left::{left_of, pass_left};
use crate::shared::sightings::sightings;

pub struct RelabelProcessor {
    config: RelabelConfig,
    /// Set when it starts: one of them may stand in a file.
    rules: OnceLock<Arc<[Rule]>>,
    memory: Memory,
    /// Where a rule may drop.
    unwanted: Option<DropReporter>,
    dropped_samples: IntCounter,
    applied: IntCounter,
}

/// What becomes of a batch of which something is dropped.
#[derive(Default)]
struct Sifted {
    resources: Vec<ResourceProfiles>,
    dropped_samples: usize,
    /// Processes that are dropped whatever else is learned of them.
    processes: Vec<SampledProcess>,
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
            memory: Memory::new(config.leftovers()),
            unwanted: may_drop.then(|| context.drop_feedback.reporter()),
            dropped_samples: counter(
                "profcol_relabel_dropped_samples",
                "Samples dropped by the relabel processor.",
            ),
            applied: counter(
                "profcol_relabel_applied",
                "Label sets evaluated against the rules.",
            ),
        }
    }

    /// Of each resource, in their order.
    fn verdicts(&self, resources: &[SharedResource]) -> Vec<Verdict> {
        let rules = self.rules.get().map_or(&[][..], |rules| rules);
        self.memory
            .verdicts(rules, resources, || self.applied.inc())
    }

    fn verdict(&self, attributes: &Attributes) -> Verdict {
        let resource = SharedResource::new(Resource {
            attributes: attributes.clone(),
            ..Resource::default()
        });
        let verdict = self.verdicts(&[resource]).pop();
        verdict.unwrap_or(Verdict::Keep(None))
    }
}

impl RelabelProcessor {
    /// Rules look at samples, too. What they drop without is dropped whole.
    async fn process_samples(&self, batch: Batch, next: &dyn Consumer) -> Answer {
        let model = batch.profiles.model();
        let mut filter =
            SampleFilter::new(&self.config.sample_labels, &model.dictionary, |labels| {
                self.verdict(labels)
            });
        for row in &model.resources {
            filter.take(row);
            let attributes = row.resource.as_ref().map(|it| &it.attributes);
            if let Some(unwanted) = &self.unwanted
                && let Some(attributes) = attributes
                && let Verdict::Drop { is_final: true } = self.verdict(attributes)
            {
                sightings(row).for_each(|process| unwanted.report_drop(process));
            }
        }
        let dropped_samples = filter.dropped_samples as u64;
        let Some(left) = filter.finish() else {
            return next.consume(batch).await;
        };
        let answer = pass_left(batch, left, next).await;
        if answer.is_ok() {
            self.dropped_samples.inc_by(dropped_samples);
        }
        answer
    }
}

impl Sifted {
    fn new(profiles: &Profiles, verdicts: Vec<Verdict>) -> Self {
        let mut sifted = Self::default();
        for (row, verdict) in profiles.model().resources.iter().zip(verdicts) {
            match verdict {
                Verdict::Keep(new) => {
                    let mut row = row.clone();
                    if let Some(new) = new {
                        row.resource = Some(new.content());
                    }
                    sifted.resources.push(row);
                }
                Verdict::Drop { is_final } => {
                    let profiles = row.scopes.iter().flat_map(|scope| &scope.profiles);
                    sifted.dropped_samples += profiles.map(|it| it.samples.len()).sum::<usize>();
                    if is_final {
                        sifted.processes.extend(sightings(row));
                    }
                }
            }
        }
        sifted
    }
}

#[async_trait]
impl Processor for RelabelProcessor {
    async fn start(&self) -> Result<(), StartError> {
        let rules = self.config.rules().map_err(StartError)?;
        self.rules.get_or_init(|| rules.into());
        Ok(())
    }

    async fn process(&self, mut batch: Batch, next: &dyn Consumer) -> Answer {
        if !self.config.sample_labels.is_empty() {
            return self.process_samples(batch, next).await;
        }
        let verdicts = self.verdicts(&batch.profiles.resources());
        if !verdicts.iter().any(Verdict::is_drop) {
            let new = verdicts.into_iter().map(Verdict::into_new);
            batch.profiles.replace_resources(new.collect());
            return next.consume(batch).await;
        }
        let sifted = Sifted::new(&batch.profiles, verdicts);
        if let Some(unwanted) = &self.unwanted {
            for &process in &sifted.processes {
                unwanted.report_drop(process);
            }
        }
        let left = left_of(&batch.profiles, sifted.resources);
        let answer = pass_left(batch, left, next).await;
        if answer.is_ok() {
            self.dropped_samples.inc_by(sifted.dropped_samples as u64);
        }
        answer
    }
}

impl RelabelConfig {
    /// Which labels are gone behind the last rule.
    pub fn leftovers(&self) -> Leftovers {
        match self.parca_config_file.is_empty() {
            true => Leftovers::Prometheus,
            false => Leftovers::Parca,
        }
    }

    /// What stands in a file is not known before the start.
    fn may_drop(&self) -> bool {
        !self.parca_config_file.is_empty() || self.configs.iter().any(RuleConfig::may_drop)
    }
}
