//! The request to stop, as each component gets it.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// The share of the time until the deadline that a component may use to finish. After the deadline it is cut off, so
/// something is left for what follows.
const USABLE: f64 = 0.8;

/// Tells a component to stop, and until when it may finish. Clones are told together.
#[derive(Clone, Debug, Default)]
pub struct Stop {
    token: CancellationToken,
    deadline: Arc<OnceLock<Instant>>,
}

impl Stop {
    pub fn new() -> Self {
        Self::default()
    }

    /// Asks to stop, with no deadline.
    pub fn cancel(&self) {
        self.token.cancel();
    }

    /// Asks to stop. A component that still runs at the deadline is cut off.
    pub fn cancel_by(&self, deadline: Instant) {
        // The first deadline stays: a component may have begun to act on it.
        let _ = self.deadline.set(deadline);
        self.token.cancel();
    }

    pub fn is_cancelled(&self) -> bool {
        self.token.is_cancelled()
    }

    /// Resolves once it was asked to stop.
    pub async fn cancelled(&self) {
        self.token.cancelled().await;
    }

    /// Resolves once it was asked to stop, to the moment by which to finish; see [`finish_within`](Self::finish_within).
    pub async fn deadline(&self, wanted: Duration) -> Instant {
        self.cancelled().await;
        self.finish_within(wanted)
    }

    /// Once it was asked to stop, the moment by which to finish: after `wanted`, or sooner so as to meet the deadline.
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
    async fn a_component_finishes_before_it_is_cut_off() {
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
    async fn a_component_has_the_time_it_wants_where_there_is_no_deadline() {
        let stop = Stop::new();
        stop.clone().cancel();
        assert!(stop.is_cancelled());
        let wanted = Duration::from_secs(5);
        assert_eq!(stop.finish_within(wanted), Instant::now() + wanted);
    }
}
