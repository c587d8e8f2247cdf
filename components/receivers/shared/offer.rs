//! Pushes batches that can wait, with retries.

#[cfg(feature = "parca")]
use std::future::ready;
use std::time::Duration;

use profcol_component::{Batch, Finalizers, Outcome, Output, Refusal, Stop};

/// Delay before the first retry, unless the refusal has one.
const INITIAL_RETRY_DELAY: Duration = Duration::from_millis(100);

/// Pushes copies of the batch until one is accepted, permanently refused, or a stop is requested; `waiting`
/// receives the outcome. Returns the permanent refusal.
#[cfg(feature = "parca")]
pub async fn offer(
    output: &Output,
    stop: &Stop,
    batch: &Batch,
    waiting: Finalizers,
    max_retry_delay: Duration,
) -> Result<(), Refusal> {
    let admit = || ready(Some(()));
    offer_within(admit, output, stop, batch, waiting, max_retry_delay).await
}

/// [`offer`] with the memory of each attempt: none is held between them. `admit` returns `None` after a stop.
pub async fn offer_within<Memory, Admitted: Future<Output = Option<Memory>>>(
    admit: impl Fn() -> Admitted,
    output: &Output,
    stop: &Stop,
    batch: &Batch,
    mut waiting: Finalizers,
    max_retry_delay: Duration,
) -> Result<(), Refusal> {
    let mut wait = INITIAL_RETRY_DELAY;
    loop {
        let Some(memory) = admit().await else {
            waiting.settle(Outcome::Undelivered);
            return Ok(());
        };
        let (handed, attempt) = waiting.attempt();
        let copy = Batch {
            finalizers: handed,
            ..batch.detached()
        };
        let answer = output.push(copy).await;
        drop(memory);
        let refusal = match answer {
            Ok(()) => {
                attempt.accepted();
                return Ok(());
            }
            Err(refusal) => refusal,
        };
        waiting = attempt.refused();
        let Refusal::Retry { after, .. } = &refusal else {
            waiting.settle(refusal.outcome());
            return Err(refusal);
        };
        tracing::debug!(error = %refusal, "Batch refused; retrying.");
        tokio::select! {
            () = tokio::time::sleep(after.unwrap_or(wait)) => {}
            () = stop.cancelled() => {
                waiting.settle(Outcome::Undelivered);
                return Ok(());
            }
        }
        wait = (wait * 2).min(max_retry_delay);
    }
}
