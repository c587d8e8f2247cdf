//! Makes batches wait for metadata that is about to arrive, such as the name of a new container.
//!
//! The wait for a key starts with its first request, and is repeated after a minute at the earliest: a key that stays
//! unknown must not delay every batch.

use std::time::Duration;

use parking_lot::Mutex;
use profcol_component::{IntCounter, Meter};
use tokio::sync::{Semaphore, watch};
use tokio::time::{Instant, timeout_at};

use profcol_metadata::BoundedCache;

/// An unanswered key may be waited for again after this.
const RETRY_AFTER: Duration = Duration::from_secs(60);
/// Maximum number of requested keys remembered.
const MAX_PENDING: usize = 8192;
/// Maximum number of waiting batches; others pass at once.
const MAX_WAITING: usize = 64;

pub(crate) struct LookupWaiter {
    wait_for: Duration,
    requested: Mutex<BoundedCache<String, Instant>>,
    /// Notifies the source of requests; the value is whether there ever was one.
    requests: watch::Sender<bool>,
    permits: Semaphore,
    waited: IntCounter,
    timed_out: IntCounter,
    not_waited: IntCounter,
}

impl LookupWaiter {
    pub fn new(wait_for: Duration, meter: &Meter, processor: &str) -> Self {
        let counter = |name, help| meter.counter(name, help, &[("processor", processor)]);
        Self {
            wait_for,
            requested: Mutex::new(BoundedCache::new(MAX_PENDING)),
            requests: watch::Sender::new(false),
            permits: Semaphore::new(MAX_WAITING),
            waited: counter(
                "profcol_metadata_waited",
                "Batches that waited for metadata and received it.",
            ),
            timed_out: counter(
                "profcol_metadata_waited_in_vain",
                "Batches whose wait for metadata timed out.",
            ),
            not_waited: counter(
                "profcol_metadata_not_waited",
                "Batches that did not wait for metadata: too many waiting.",
            ),
        }
    }

    /// Receives a notification for each request.
    pub fn requests(&self) -> watch::Receiver<bool> {
        let mut questions = self.requests.subscribe();
        if *questions.borrow() {
            questions.mark_changed();
        }
        questions
    }

    /// Requests unknown keys, and waits for them if enabled. `unknown` returns the keys still unknown;
    /// `news` changes whenever a key becomes known.
    pub async fn wait<T>(&self, mut news: watch::Receiver<T>, unknown: impl Fn() -> Vec<String>) {
        let keys = unknown();
        let Some(until) = self.note(&keys) else {
            return;
        };
        if until <= Instant::now() {
            return;
        }
        let Ok(_permit) = self.permits.try_acquire() else {
            self.not_waited.inc();
            return;
        };
        let answered = async {
            // If the source is gone, no answer will come.
            while news.changed().await.is_ok() {
                let missing = unknown();
                if keys.iter().all(|key| !missing.contains(key)) {
                    return;
                }
            }
        };
        match timeout_at(until, answered).await {
            Ok(()) => self.waited.inc(),
            Err(_) => self.timed_out.inc(),
        }
    }

    /// The deadline for all of these keys; `None` if none is unknown.
    fn note(&self, keys: &[String]) -> Option<Instant> {
        let now = Instant::now();
        let mut requested = self.requested.lock();
        let mut is_new = false;
        let times = keys.iter().map(|key| {
            let known = requested.get(key).filter(|time| *time + RETRY_AFTER > now);
            known.unwrap_or_else(|| {
                requested.insert(key.clone(), now, 1);
                is_new = true;
                now
            })
        });
        let last = times.max()?;
        drop(requested);
        if is_new {
            self.requests.send_replace(true);
        }
        Some(last + self.wait_for)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn waiter(wait_for: Duration) -> LookupWaiter {
        LookupWaiter::new(wait_for, &Meter::default(), "test")
    }

    #[tokio::test(start_paused = true)]
    async fn waits_once_for_a_key_that_stays_unknown() {
        let waiter = waiter(5 * SECOND);
        let news = watch::Sender::new(());
        let mut questions = waiter.requests();
        let wait = async || {
            let start = Instant::now();
            waiter.wait(news.subscribe(), || vec!["a".to_owned()]).await;
            start.elapsed()
        };
        assert_eq!(wait().await, 5 * SECOND);
        assert!(questions.has_changed().unwrap());
        questions.mark_unchanged();
        assert_eq!(wait().await, Duration::ZERO);
        assert!(
            !questions.has_changed().unwrap(),
            "it was requested just before"
        );
        tokio::time::advance(RETRY_AFTER).await;
        assert_eq!(wait().await, 5 * SECOND);
        assert_eq!((waiter.timed_out.get(), waiter.waited.get()), (2, 0));
    }

    #[tokio::test(start_paused = true)]
    async fn continues_when_all_keys_are_known() {
        let waiter = waiter(5 * SECOND);
        let news = watch::Sender::new(());
        let is_known = Arc::new(AtomicBool::new(false));
        let source = async {
            tokio::time::sleep(SECOND).await;
            news.send_replace(());
            tokio::time::sleep(SECOND).await;
            is_known.store(true, Relaxed);
            news.send_replace(());
        };
        let unknown = || match is_known.load(Relaxed) {
            true => Vec::new(),
            false => vec!["a".to_owned()],
        };
        let start = Instant::now();
        tokio::join!(waiter.wait(news.subscribe(), unknown), source);
        assert_eq!((start.elapsed(), waiter.waited.get()), (2 * SECOND, 1));
    }

    #[tokio::test(start_paused = true)]
    async fn does_not_wait_when_disabled_or_crowded() {
        let news = watch::Sender::new(());
        let start = Instant::now();
        let eager = waiter(Duration::ZERO);
        eager.wait(news.subscribe(), || vec!["a".to_owned()]).await;
        let crowded = waiter(SECOND);
        let permits = crowded
            .permits
            .acquire_many(MAX_WAITING as u32)
            .await
            .unwrap();
        crowded
            .wait(news.subscribe(), || vec!["a".to_owned()])
            .await;
        drop(permits);
        assert_eq!(
            (start.elapsed(), crowded.not_waited.get()),
            (Duration::ZERO, 1)
        );
    }
}
