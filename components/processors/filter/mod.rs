//! Drops samples, profiles and whole resources by their attributes.
//!
//! A process that is dropped by what it is would be sampled for nothing: the receiver that samples
//! it is told, and where no other pipeline wants it, stops.

mod config;
mod rule;
mod sieve;
#[cfg(test)]
mod tests;

use async_trait::async_trait;
use profcol_component::{
    Answer, Batch, BuildContext, BuildError, Consumer, Factory, IntCounter, Outcome, Processor,
    Reporter, Stability,
};
use profcol_profile::{Model, Profiles, gc};

pub use self::config::FilterConfig;
use self::rule::{Rules, Verdict};
use self::sieve::{Dropped, Sieve};

pub struct FilterProcessor {
    rules: Rules,
    unwanted: Reporter,
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
            rules: Rules::new(config).map_err(|error| BuildError(error.to_string()))?,
            unwanted: context.unwanted.reporter(),
            dropped_samples: counter(
                "profcol_filter_dropped_samples",
                "Samples dropped by the filter processor.",
            ),
            dropped_profiles: counter(
                "otelcol_processor_filter_profiles_filtered",
                "Number of profiles dropped by the filter processor.",
            ),
        })
    }

    /// Whether resources alone decide that all of it passes: samples are not decoded for that.
    fn keeps_all(&self, profiles: &Profiles) -> bool {
        let mut keeps_all = true;
        profiles.look_at_resources(|resource| {
            let open = self.rules.of_resource(&resource.attributes);
            keeps_all &= open.resource_verdict() == Verdict::Keep;
        });
        keeps_all
    }

    /// What is left, `None` where that is all, and what is not.
    fn sift(&self, profiles: &Profiles) -> (Option<Model>, Dropped) {
        let model = profiles.model();
        let mut sieve = Sieve::new(&self.rules, &model.dictionary);
        let resources = model.resources.iter();
        let resources = resources.filter_map(|row| sieve.resource(row)).collect();
        let dropped = sieve.dropped;
        if dropped.is_nothing() {
            return (None, dropped);
        }
        let left = Model {
            dictionary: model.dictionary.clone(),
            resources,
        };
        (Some(gc(&left)), dropped)
    }

    fn count(&self, dropped: &Dropped) {
        self.dropped_samples.inc_by(dropped.samples as u64);
        self.dropped_profiles.inc_by(dropped.profiles as u64);
    }
}

#[async_trait]
impl Processor for FilterProcessor {
    async fn process(&self, batch: Batch, next: &dyn Consumer) -> Answer {
        if self.keeps_all(&batch.profiles) {
            return next.consume(batch).await;
        }
        let (left, dropped) = self.sift(&batch.profiles);
        for &process in &dropped.processes {
            self.unwanted.drops(process);
        }
        let Some(left) = left else {
            return next.consume(batch).await;
        };
        if left.resources.is_empty() {
            self.count(&dropped);
            batch.finalizers.settle(Outcome::Delivered);
            return Ok(());
        }
        let answer = next
            .consume(batch.with_profiles(Profiles::from_model(left)))
            .await;
        // What is refused comes again, with what is dropped of it.
        if answer.is_ok() {
            self.count(&dropped);
        }
        answer
    }
}
