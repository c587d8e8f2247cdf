//! The stop request passed to each component.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// The fraction of the time until the deadline that a component may use to finish, as it is aborted at the deadline.
const USABLE: f64 = 0.8;

/// Signals a component to stop, with an optional deadline. Clones share the signal.
#[derive(Clone, Debug, Default)]
pub struct Stop {
    token: CancellationToken,
    deadline: Arc<OnceLock<Instant>>,
}

impl Stop {
    pub fn new() -> Self {
        Self::default()
    }

    /// Requests a stop without a deadline.
    pub fn cancel(&self) {
        self.token.cancel();
    }

    /// Requests a stop. A component still running at the deadline is aborted.
    pub fn cancel_by(&self, deadline: Instant) {
        // The first deadline wins: a component may already act on it.
        let _ = self.deadline.set(deadline);
        self.token.cancel();
    }

    pub fn is_cancelled(&self) -> bool {
        self.token.is_cancelled()
    }

    /// Resolves when a stop is requested.
    pub async fn cancelled(&self) {
        self.token.cancelled().await;
    }

    /// Resolves when a stop is requested, to the time by which to finish; see [`finish_within`](Self::finish_within).
    pub async fn deadline(&self, wanted: Duration) -> Instant {
        self.cancelled().await;
        self.finish_within(wanted)
    }

    /// After a stop request, the time by which to finish: `wanted` from now, or earlier to meet the deadline.
    pub fn finish_within(&self, wanted: Duration) -> Instant {
        let now = Instant::now();
        let left = self
            .deadline
            .get()
            .map(|deadline| deadline.saturating_duration_since(now).mul_f64(USABLE));
        now + left.map_or(wanted, |left| left.min(wanted))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_component_finishes_before_the_deadline() {
        let stop = Stop::new();
        let deadline = Instant::now() + Duration::from_secs(2);
        stop.cancel_by(deadline);
        stop.cancelled().await;
        assert!(stop.finish_within(Duration::from_secs(5)) < deadline);
        assert_eq!(
            stop.finish_within(Duration::from_secs(1)),
            Instant::now() + Duration::from_secs(1)
        );
    }

    #[tokio::test(start_paused = true)]
    async fn without_a_deadline_a_component_has_the_time_it_wants() {
        let stop = Stop::new();
        stop.clone().cancel();
        assert!(stop.is_cancelled());
        let wanted = Duration::from_secs(5);
        assert_eq!(stop.finish_within(wanted), Instant::now() + wanted);
    }
}
