//! Drops samples, profiles and whole resources by their attributes.
//!
//! If the resource alone decides that a process is dropped, the receiver gets drop feedback and, unless another
//! pipeline needs the process, stops sampling it.

mod config;
mod sample_filter;
#[cfg(test)]
mod tests;

use async_trait::async_trait;
use profcol_component::{
    Answer, Batch, BuildContext, BuildError, Consumer, DropFeedback, DropReporter, Factory,
    IntCounter, Processor, Stability,
};
use profcol_profile::{Model, Profiles};

pub use self::config::FilterConfig;
use self::sample_filter::{Dropped, SampleFilter};
use crate::shared::remainder::push_remainder;
use crate::shared::rules::{Decision, Rules};

pub struct FilterProcessor {
    rules: Rules,
    drop_reporter: DropReporter,
    dropped_samples: IntCounter,
    dropped_profiles: IntCounter,
}

impl Factory for FilterProcessor {
    const NAME: &'static str = "filter";
    const STABILITY: Stability = Stability::Alpha;
    type Config = FilterConfig;
    type Component = dyn Processor;

    fn build(
        config: &FilterConfig,
        context: &BuildContext,
    ) -> Result<Box<dyn Processor>, BuildError> {
        Ok(Box::new(FilterProcessor::new(config, context)?))
    }
}

impl FilterProcessor {
    fn new(config: &FilterConfig, context: &BuildContext) -> Result<Self, BuildError> {
        let id = context.id.to_string();
        let counter = |name, help| context.meter.counter(name, help, &[("processor", &id)]);
        Ok(Self {
            rules: Rules::new(&config.include, &config.exclude)?,
            drop_reporter: DropFeedback::of(context).reporter(),
            dropped_samples: counter(
                "profcol_filter_dropped_samples",
                "Samples dropped by `include` or `exclude`.",
            ),
            dropped_profiles: counter(
                "otelcol_processor_filter_profiles_filtered",
                "Number of profiles dropped by the filter processor.",
            ),
        })
    }

    /// The remaining profiles, and what was dropped.
    fn apply(&self, profiles: &Profiles) -> (Model, Dropped) {
        let model = profiles.model();
        let mut filter = SampleFilter::new(&self.rules, &model.dictionary);
        let resources = model.resources.iter();
        let resources = resources.filter_map(|row| filter.resource(row)).collect();
        (model.with_resources(resources), filter.dropped)
    }

    fn count(&self, dropped: &Dropped) {
        self.dropped_samples.inc_by(dropped.samples as u64);
        self.dropped_profiles.inc_by(dropped.profiles as u64);
    }
}

#[async_trait]
impl Processor for FilterProcessor {
    async fn process(&self, batch: Batch, next: &dyn Consumer) -> Answer {
        // Avoids decoding samples if the resources alone decide.
        if self.rules.decide_all(&batch.profiles, Decision::Keep) {
            return next.consume(batch).await;
        }
        let (left, dropped) = self.apply(&batch.profiles);
        for &process in &dropped.processes {
            self.drop_reporter.report_drop(process);
        }
        if dropped.is_nothing() {
            return next.consume(batch).await;
        }
        let answer = push_remainder(batch, left, next).await;
        if answer.is_ok() {
            self.count(&dropped);
        }
        answer
    }
}
