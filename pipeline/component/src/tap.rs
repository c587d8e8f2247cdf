//! Taps: subscriptions to the batches that pass a component.
//!
//! Each component has a [`Tap`] where batches come in and one where they go out. Without a subscriber, a tap costs one
//! atomic load per batch. Subscribers get references to the batches, within the bounds of a [`TapSubscription`]: a slow
//! one misses batches, which are counted, and never delays a pipeline.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::SystemTime;

use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::{Batch, Kind};

/// Maximum number of concurrent subscriptions.
pub const MAX_SUBSCRIPTIONS: usize = 16;
/// Batches that wait for a subscriber.
const MAX_HELD_BATCHES: usize = 64;
/// Memory of the batches held for a subscriber, except that of a single batch, which may be larger.
const MAX_HELD_BYTES: usize = 16 << 20;

/// All taps of the process, also those of replaced components that still deliver. Cheap to clone.
#[derive(Clone, Default)]
pub struct Taps(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    taps: BTreeMap<TapPoint, Weak<Tap>>,
    subscribers: Vec<Weak<Subscriber>>,
}

/// Where a tap is. The instances of a component that a reload replaces one by the other share it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct TapPoint {
    pub kind: Kind,
    pub id: String,
    /// The pipeline of a processor; other components have one instance for all pipelines.
    pub pipeline: Option<String>,
    pub side: Side,
}

/// A side of a component. Receivers have an output and exporters an input.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Side {
    Input,
    Output,
}

/// Batches pass here.
pub struct Tap {
    point: TapPoint,
    /// Whether there are subscribers.
    is_watched: AtomicBool,
    subscribers: Mutex<Vec<Arc<Subscriber>>>,
}

/// The batches that pass some taps, until it is dropped.
pub struct TapSubscription {
    subscriber: Arc<Subscriber>,
    taps: Vec<Arc<Tap>>,
}

/// A batch that has passed a tap.
#[derive(Clone, Debug)]
pub struct Passed {
    pub point: TapPoint,
    pub time: SystemTime,
    /// The batch, without its finalizers.
    pub batch: Batch,
}

/// Why there is no subscription.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SubscribeError {
    #[error("there is no such component in the running pipelines")]
    NoTap,
    #[error("{MAX_SUBSCRIPTIONS} such requests are running already; wait until one ends")]
    TooMany,
}

#[derive(Default)]
struct Subscriber {
    held: Mutex<Held>,
    arrived: Notify,
}

#[derive(Default)]
struct Held {
    batches: VecDeque<(Passed, usize)>,
    bytes: usize,
    missed: u64,
}

// === impl Taps ===

impl Taps {
    /// The tap at `point`, created if there is none.
    pub fn tap(&self, point: TapPoint) -> Arc<Tap> {
        let mut state = self.0.lock();
        if let Some(tap) = state.taps.get(&point).and_then(Weak::upgrade) {
            return tap;
        }
        state.taps.retain(|_, tap| tap.strong_count() > 0);
        let tap = Arc::new(Tap {
            point: point.clone(),
            is_watched: AtomicBool::new(false),
            subscribers: Mutex::default(),
        });
        state.taps.insert(point, Arc::downgrade(&tap));
        tap
    }

    /// Subscribes to the taps that `selects` returns `true` for.
    pub fn subscribe(
        &self,
        selects: impl Fn(&TapPoint) -> bool,
    ) -> Result<TapSubscription, SubscribeError> {
        let mut state = self.0.lock();
        let selected = state.taps.iter().filter(|(point, _)| selects(point));
        let taps: Vec<Arc<Tap>> = selected.filter_map(|(_, tap)| tap.upgrade()).collect();
        if taps.is_empty() {
            return Err(SubscribeError::NoTap);
        }
        state.subscribers.retain(|it| it.strong_count() > 0);
        if state.subscribers.len() == MAX_SUBSCRIPTIONS {
            return Err(SubscribeError::TooMany);
        }
        let subscriber = Arc::new(Subscriber::default());
        state.subscribers.push(Arc::downgrade(&subscriber));
        for tap in &taps {
            tap.add(&subscriber);
        }
        Ok(TapSubscription { subscriber, taps })
    }
}

impl fmt::Debug for Taps {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} taps", self.0.lock().taps.len())
    }
}

// === impl Tap ===

impl Tap {
    /// Offers a batch to the subscribers.
    pub fn pass(&self, batch: &Batch) {
        if self.is_watched.load(Ordering::Relaxed) {
            self.show(batch);
        }
    }

    fn show(&self, batch: &Batch) {
        let bytes = batch.profiles.heap_size();
        for subscriber in &*self.subscribers.lock() {
            subscriber.offer(bytes, || Passed {
                point: self.point.clone(),
                time: SystemTime::now(),
                batch: batch.detached(),
            });
        }
    }

    fn add(&self, subscriber: &Arc<Subscriber>) {
        let mut subscribers = self.subscribers.lock();
        subscribers.push(Arc::clone(subscriber));
        self.is_watched.store(true, Ordering::Relaxed);
    }

    fn remove(&self, subscriber: &Arc<Subscriber>) {
        let mut subscribers = self.subscribers.lock();
        subscribers.retain(|other| !Arc::ptr_eq(other, subscriber));
        self.is_watched
            .store(!subscribers.is_empty(), Ordering::Relaxed);
    }
}

// === impl TapSubscription ===

impl TapSubscription {
    /// The next batch. Cancel-safe.
    pub async fn next(&self) -> Passed {
        loop {
            if let Some(passed) = self.subscriber.take() {
                return passed;
            }
            self.subscriber.arrived.notified().await;
        }
    }

    /// Batches that passed while too many others waited to be taken.
    pub fn missed(&self) -> u64 {
        self.subscriber.held.lock().missed
    }
}

impl Drop for TapSubscription {
    fn drop(&mut self) {
        for tap in &self.taps {
            tap.remove(&self.subscriber);
        }
    }
}

// === impl Subscriber ===

impl Subscriber {
    fn offer(&self, bytes: usize, passed: impl FnOnce() -> Passed) {
        let mut held = self.held.lock();
        let is_full = held.batches.len() == MAX_HELD_BATCHES
            || held.bytes.saturating_add(bytes) > MAX_HELD_BYTES;
        if is_full && !held.batches.is_empty() {
            held.missed += 1;
            return;
        }
        held.bytes += bytes;
        held.batches.push_back((passed(), bytes));
        drop(held);
        self.arrived.notify_one();
    }

    fn take(&self) -> Option<Passed> {
        let mut held = self.held.lock();
        let (passed, bytes) = held.batches.pop_front()?;
        held.bytes -= bytes;
        Some(passed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Outcome;
    use crate::testkit::{batch, batch_with_outcomes};

    fn point(id: &str, side: Side) -> TapPoint {
        TapPoint {
            kind: Kind::Processor,
            id: id.to_owned(),
            pipeline: Some("profiles".to_owned()),
            side,
        }
    }

    /// Samples of the batches that the subscriber has got but not taken.
    fn taken(subscription: &TapSubscription) -> Vec<usize> {
        let passed = std::iter::from_fn(|| subscription.subscriber.take());
        passed.map(|it| it.batch.profiles.sample_count()).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn a_viewer_waits_for_the_next_batch() {
        let taps = Taps::default();
        let tap = taps.tap(point("a", Side::Input));
        let subscription = taps.subscribe(|_| true).unwrap();
        let later = async {
            tokio::time::sleep(std::time::Duration::from_secs(1)).await;
            tap.pass(&batch(6));
        };
        let (passed, ()) = tokio::join!(subscription.next(), later);
        assert_eq!(passed.batch.profiles.sample_count(), 6);
        assert_eq!(passed.point, point("a", Side::Input));
    }

    #[test]
    fn subscribers_get_what_passes_the_selected_taps() {
        let taps = Taps::default();
        let [a, b] = ["a", "b"].map(|id| taps.tap(point(id, Side::Input)));
        a.pass(&batch(1));
        let of_a = taps.subscribe(|point| point.id == "a").unwrap();
        let all = taps.subscribe(|_| true).unwrap();
        a.pass(&batch(2));
        b.pass(&batch(3));
        assert_eq!((taken(&of_a), taken(&all)), (vec![2], vec![2, 3]));
        assert_eq!(
            taps.subscribe(|it| it.id == "c").err(),
            Some(SubscribeError::NoTap)
        );
    }

    #[test]
    fn a_tap_is_idle_before_and_after_a_subscription() {
        let taps = Taps::default();
        let tap = taps.tap(point("a", Side::Input));
        let is_watched = || tap.is_watched.load(Ordering::Relaxed);
        assert!(!is_watched());
        let [one, other] = [(); 2].map(|()| taps.subscribe(|_| true).unwrap());
        drop(one);
        assert!(is_watched());
        drop(other);
        assert!(!is_watched() && tap.subscribers.lock().is_empty());
    }

    #[test]
    fn a_slow_viewer_misses_batches_and_holds_few() {
        let taps = Taps::default();
        let tap = taps.tap(point("a", Side::Input));
        let [slow, fast] = [(); 2].map(|()| taps.subscribe(|_| true).unwrap());
        for _ in 0..MAX_HELD_BATCHES + 3 {
            tap.pass(&batch(1));
            assert_eq!(taken(&fast), [1]);
        }
        assert_eq!((slow.missed(), fast.missed()), (3, 0));
        assert_eq!(taken(&slow).len(), MAX_HELD_BATCHES);
        // One that is too large is still shown, alone.
        for _ in 0..2 {
            slow.subscriber.offer(MAX_HELD_BYTES + 1, || Passed {
                point: point("a", Side::Input),
                time: SystemTime::now(),
                batch: batch(5),
            });
        }
        assert_eq!((taken(&slow), slow.missed()), (vec![5], 4));
    }

    #[test]
    fn the_number_of_subscriptions_is_bounded() {
        let taps = Taps::default();
        let _tap = taps.tap(point("a", Side::Input));
        let mut subscriptions: Vec<TapSubscription> = (0..MAX_SUBSCRIPTIONS)
            .map(|_| taps.subscribe(|_| true).unwrap())
            .collect();
        assert_eq!(
            taps.subscribe(|_| true).err(),
            Some(SubscribeError::TooMany)
        );
        subscriptions.pop();
        assert!(taps.subscribe(|_| true).is_ok());
    }

    #[test]
    fn a_replaced_component_has_the_same_tap_and_one_that_left_has_none() {
        let taps = Taps::default();
        let old = taps.tap(point("a", Side::Output));
        let subscription = taps.subscribe(|_| true).unwrap();
        let new = taps.tap(point("a", Side::Output));
        drop(old);
        new.pass(&batch(4));
        assert_eq!(taken(&subscription), [4]);
        drop((subscription, new));
        assert_eq!(taps.subscribe(|_| true).err(), Some(SubscribeError::NoTap));
    }

    #[test]
    fn a_subscription_does_not_touch_the_outcome() {
        let taps = Taps::default();
        let tap = taps.tap(point("a", Side::Input));
        let subscription = taps.subscribe(|_| true).unwrap();
        let (mut batch, outcomes) = batch_with_outcomes(1);
        tap.pass(&batch);
        drop(taken(&subscription));
        assert_eq!(outcomes.seen(), []);
        std::mem::take(&mut batch.finalizers).settle(Outcome::Delivered);
        assert_eq!(outcomes.seen(), [Outcome::Delivered]);
    }
}
