//! Backoff between attempts.

use std::time::Duration;

use profcol_component::RetrySettings;
use tokio::time::Instant;

/// Exponential backoff with jitter, so that many agents do not hit a recovering server in lockstep.
#[derive(Clone)]
pub(crate) struct Backoff {
    settings: Option<RetrySettings>,
    interval: Duration,
    began: Instant,
}

impl Backoff {
    pub(crate) fn new(settings: &RetrySettings) -> Self {
        Self {
            interval: settings.initial_interval.into(),
            settings: settings.enabled.then(|| settings.clone()),
            began: Instant::now(),
        }
    }

    /// The next wait, at least the server's `Retry-After`; `None` to give up.
    pub(crate) fn next(&mut self, retry_after: Option<Duration>) -> Option<Duration> {
        let settings = self.settings.as_ref()?;
        let wait = jittered(self.interval, settings.randomization_factor, random_unit())
            .max(retry_after.unwrap_or_default());
        let max_elapsed: Duration = settings.max_elapsed_time.into();
        if !max_elapsed.is_zero() && self.began.elapsed().saturating_add(wait) > max_elapsed {
            return None;
        }
        let grown = self.interval.mul_f64(settings.multiplier.clamp(0.0, 1e3));
        self.interval = grown.min(settings.max_interval.into());
        Some(wait)
    }
}

fn jittered(interval: Duration, factor: f64, random: f64) -> Duration {
    interval.mul_f64(1.0 + factor.clamp(0.0, 1.0) * (2.0 * random - 1.0))
}

/// A random number in [0, 1), from the standard library's hash map seeds.
fn random_unit() -> f64 {
    use std::hash::{BuildHasher, RandomState};
    (RandomState::new().hash_one(0_u8) >> 11) as f64 / (1_u64 << 53) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `Retry-After` may be any number.
    #[tokio::test(start_paused = true)]
    async fn an_endless_delay_is_out_of_time() {
        let mut backoff = Backoff::new(&RetrySettings::default());
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!(backoff.next(Some(Duration::MAX)), None);
    }

    #[tokio::test(start_paused = true)]
    async fn the_last_attempt_may_be_at_the_limit() {
        let second = profcol_config::Duration::from_secs(1);
        let mut backoff = Backoff::new(&RetrySettings {
            initial_interval: second,
            randomization_factor: 0.0,
            max_elapsed_time: second,
            ..RetrySettings::default()
        });
        assert_eq!(backoff.next(None), Some(second.into()));
        assert_eq!(backoff.next(None), None);
    }

    #[test]
    fn jitter_stays_within_its_factor() {
        let second = Duration::from_secs(1);
        assert_eq!(jittered(second, 0.5, 0.0), Duration::from_millis(500));
        assert_eq!(jittered(second, 0.5, 0.5), second);
        assert_eq!(jittered(second, 0.0, 0.9), second);
        let units: Vec<f64> = (0..1000).map(|_| random_unit()).collect();
        assert!(units.iter().all(|unit| (0.0..1.0).contains(unit)));
        // It differs, so that not all agents come at once.
        assert!(units.iter().any(|unit| *unit < 0.1) && units.iter().any(|unit| *unit > 0.9));
    }
}
