//! Passes on only some processes, or only some of the time.
//!
//! The decision is a hash of the process and the time slice, so no state is kept. The receiver gets drop feedback with
//! the end of the slice.

mod config;
mod draw;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use async_trait::async_trait;
use profcol_component::{
    Answer, Batch, BuildContext, BuildError, Consumer, DropExpiry, DropFeedback, DropReporter,
    Factory, IntCounter, Processor, SampledProcess, Stability,
};
use profcol_profile::{Profile, Profiles, ResourceProfiles, ScopeProfiles};
use ring::rand::{SecureRandom, SystemRandom};

pub use self::config::ProbabilisticSamplerConfig;
use self::draw::Draw;
use crate::shared::remainder::push_remainder;
use profcol_metadata::attributes::{PID, find};

pub struct ProbabilisticSampler {
    draw: Draw,
    /// `None` if nothing is ever dropped.
    drop_reporter: Option<DropReporter>,
    dropped_samples: IntCounter,
}

/// The remaining part of a batch.
#[derive(Default)]
struct Left {
    resources: Vec<ResourceProfiles>,
    dropped_samples: usize,
    processes: Vec<(SampledProcess, DropExpiry)>,
}

impl Factory for ProbabilisticSampler {
    const NAME: &'static str = "probabilistic_sampler";
    const STABILITY: Stability = Stability::Alpha;
    type Config = ProbabilisticSamplerConfig;
    type Component = dyn Processor;

    fn build(
        config: &ProbabilisticSamplerConfig,
        context: &BuildContext,
    ) -> Result<Box<dyn Processor>, BuildError> {
        Ok(Box::new(ProbabilisticSampler::new(config, context)?))
    }
}

impl ProbabilisticSampler {
    fn new(
        config: &ProbabilisticSamplerConfig,
        context: &BuildContext,
    ) -> Result<Self, BuildError> {
        let mut seed = [0; 4];
        SystemRandom::new().fill(&mut seed).map_err(|_| {
            BuildError::new("failed to get random numbers from the system: set hash_seed")
        })?;
        let draw = Draw::new(config, u32::from_le_bytes(seed));
        Ok(Self {
            drop_reporter: (!draw.samples_all()).then(|| DropFeedback::of(context).reporter()),
            draw,
            dropped_samples: context.meter.counter(
                "profcol_probabilistic_sampler_dropped_samples",
                "Samples dropped by the sampling decision.",
                &[("processor", &context.id.to_string())],
            ),
        })
    }

    fn left(&self, profiles: &Profiles) -> Left {
        let mut left = Left::default();
        for row in &profiles.model().resources {
            left.take(row, &self.draw);
        }
        left
    }
}

impl Left {
    fn take(&mut self, row: &ResourceProfiles, draw: &Draw) {
        let none = Vec::new();
        let attributes = row.resource.as_ref().map_or(&none, |it| &it.attributes);
        let pid = find(attributes, PID).and_then(|pid| pid.as_int());
        let drawn = draw.of(attributes);
        let mut is_sampled = |profile: &&Arc<Profile>| {
            let time = profile.time_unix_nano;
            let is_sampled = draw.is_sampled(&drawn, time);
            if !is_sampled {
                self.dropped_samples += profile.samples.len();
                let process = pid.map(|pid| SampledProcess { pid, time });
                self.processes
                    .extend(process.map(|it| (it, draw.until(time))));
            }
            is_sampled
        };
        let scopes = row.scopes.iter().map(|scope| ScopeProfiles {
            profiles: scope
                .profiles
                .iter()
                .filter(&mut is_sampled)
                .cloned()
                .collect(),
            ..scope.clone()
        });
        let scopes: Vec<_> = scopes.filter(|scope| !scope.profiles.is_empty()).collect();
        if !scopes.is_empty() {
            self.resources.push(ResourceProfiles {
                scopes,
                ..row.clone()
            });
        }
    }
}

#[async_trait]
impl Processor for ProbabilisticSampler {
    async fn process(&self, batch: Batch, next: &dyn Consumer) -> Answer {
        let Some(drop_reporter) = &self.drop_reporter else {
            return next.consume(batch).await;
        };
        let left = self.left(&batch.profiles);
        for &(process, until) in &left.processes {
            drop_reporter.report_drop_until(process, until);
        }
        if left.dropped_samples == 0 && left.processes.is_empty() {
            return next.consume(batch).await;
        }
        let passing = batch.profiles.model().with_resources(left.resources);
        let answer = push_remainder(batch, passing, next).await;
        if answer.is_ok() {
            self.dropped_samples.inc_by(left.dropped_samples as u64);
        }
        answer
    }
}
