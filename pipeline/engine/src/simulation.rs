//! Random schedules on the paused clock, for tests.

use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use profcol_profile::Profiles;

/// Environment variables that choose schedules.
pub struct Seeds {
    /// Repeats one.
    pub one: &'static str,
    /// Runs another number of them.
    pub count: &'static str,
}

impl Seeds {
    /// On a paused clock.
    pub fn each(&self, count: u64, mut run: impl AsyncFnMut(u64)) {
        let seeds = match (number(self.one), number(self.count)) {
            (Some(seed), _) => seed..seed + 1,
            (None, given) => 0..given.unwrap_or(count),
        };
        for seed in seeds {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_time()
                .start_paused(true)
                .build()
                .unwrap();
            runtime.block_on(run(seed));
        }
    }

    /// Whether not all schedules run, so that not all outcomes are reached.
    pub fn are_chosen(&self) -> bool {
        number(self.one).or(number(self.count)).is_some()
    }
}

fn number(variable: &str) -> Option<u64> {
    let value = std::env::var(variable).ok()?;
    Some(value.parse().expect("a number"))
}

/// Profiles that name their batch, also after they were merged and split.
pub fn named(mut profiles: Profiles, id: u64) -> Profiles {
    profiles.edit(|model| {
        for resource in &mut model.resources {
            for profile in resource
                .scopes
                .iter_mut()
                .flat_map(|scope| &mut scope.profiles)
            {
                Arc::make_mut(profile).time_unix_nano = id;
            }
        }
    });
    profiles
}

/// The batches in these profiles, with their samples.
pub fn samples_of(profiles: &Profiles) -> Vec<(u64, usize)> {
    let resources = profiles.model().resources.iter();
    let profiles = resources.flat_map(|it| it.scopes.iter().flat_map(|scope| &scope.profiles));
    profiles
        .map(|profile| (profile.time_unix_nano, profile.samples.len()))
        .collect()
}

pub fn up_to(random: &mut Rng, milliseconds: u64) -> Duration {
    Duration::from_millis(random.u64(..milliseconds))
}
