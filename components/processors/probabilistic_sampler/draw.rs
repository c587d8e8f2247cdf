//! The sampling decision: a function of process, time slice and seed only.

use std::time::Duration;

use profcol_component::DropExpiry;
use profcol_profile::Attributes;
use ring::digest::{Context, SHA256};

use super::config::{ProbabilisticSamplerConfig, SamplingUnit};
use crate::values::text;
use profcol_metadata::attributes::{PID, find};

/// The attributes that identify hosts, and processes on them.
const OF_HOST: &[&str] = &["host.id", "host.name"];
const OF_PROCESS: &[&str] = &["host.id", "host.name", PID, "process.creation.time"];

pub(super) struct Draw {
    /// Number of passing hash values, of 2^64.
    passing: u128,
    by: SamplingUnit,
    interval: u64,
    seed: u32,
}

/// The hash state of a process or host.
pub(super) struct Drawn(Context);

impl Draw {
    pub fn new(config: &ProbabilisticSamplerConfig, own_seed: u32) -> Self {
        let share = config.sampling_percentage.clamp(0.0, 100.0) / 100.0;
        let interval: Duration = config.interval.into();
        Self {
            passing: (share * 2f64.powi(64)) as u128,
            by: config.by,
            interval: u64::try_from(interval.as_nanos()).unwrap_or(u64::MAX),
            seed: config.hash_seed.unwrap_or(own_seed),
        }
    }

    pub fn samples_all(&self) -> bool {
        self.passing >= 1 << 64
    }

    pub fn of(&self, resource: &Attributes) -> Drawn {
        let mut context = Context::new(&SHA256);
        context.update(&self.seed.to_le_bytes());
        let mut add = |key: &str, value: &str| {
            // The lengths make the concatenation unambiguous.
            for part in [key, value] {
                context.update(&(part.len() as u64).to_le_bytes());
                context.update(part.as_bytes());
            }
        };
        let keys = match self.by {
            SamplingUnit::Host => OF_HOST,
            SamplingUnit::Process if find(resource, PID).is_some() => OF_PROCESS,
            SamplingUnit::Process => {
                for attribute in resource {
                    add(&attribute.key, &text(&attribute.value));
                }
                &[]
            }
        };
        for key in keys {
            if let Some(value) = find(resource, key) {
                add(key, &text(value));
            }
        }
        Drawn(context)
    }

    /// Whether samples taken at `time` pass.
    pub fn is_sampled(&self, drawn: &Drawn, time: u64) -> bool {
        let mut context = drawn.0.clone();
        let slice = time.checked_div(self.interval).unwrap_or(0);
        context.update(&slice.to_le_bytes());
        let digest = context.finish();
        let first = digest.as_ref().first_chunk::<8>();
        let outcome = first.map_or(0, |bytes| u64::from_le_bytes(*bytes));
        u128::from(outcome) < self.passing
    }

    /// The end of the time slice of `time`.
    pub fn until(&self, time: u64) -> DropExpiry {
        match time.checked_div(self.interval) {
            Some(slice) => DropExpiry::Time((slice + 1).saturating_mul(self.interval)),
            None => DropExpiry::ProcessEnd,
        }
    }
}
