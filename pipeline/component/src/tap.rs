//! Looks at batches that pass a component.
//!
//! Each component has a [`Tap`] where batches come in and one where they go out. While nobody looks, a tap costs one
//! atomic load per batch. While somebody does, it hands out references to the batches, within the bounds of the
//! [`Look`]: a slow viewer misses batches, which are counted, and never delays a pipeline.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::SystemTime;

use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::{Batch, Kind};

/// Maximum number of concurrent looks.
pub const MAX_LOOKS: usize = 16;
/// Batches that a look holds for its viewer.
const MAX_HELD_BATCHES: usize = 64;
/// Their memory, except that of a single batch, which may be larger.
const MAX_HELD_BYTES: usize = 16 << 20;

/// All taps of the process, also those of replaced components that still deliver. Cheap to clone.
#[derive(Clone, Default)]
pub struct Taps(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    taps: BTreeMap<TapPoint, Weak<Tap>>,
    looks: Vec<Weak<Viewer>>,
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
    /// Whether there are viewers.
    is_watched: AtomicBool,
    viewers: Mutex<Vec<Arc<Viewer>>>,
}

/// The batches that pass some taps, until it is dropped.
pub struct Look {
    viewer: Arc<Viewer>,
    taps: Vec<Arc<Tap>>,
}

/// A batch that has passed a tap.
#[derive(Clone, Debug)]
pub struct Passed {
    pub point: TapPoint,
    pub time: SystemTime,
    /// Without finalizers.
    pub batch: Batch,
}

/// Why nothing can be looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LookError {
    #[error("there is no such component in the running pipelines")]
    NoTap,
    #[error("{MAX_LOOKS} requests look at components already; wait until one ends")]
    TooMany,
}

#[derive(Default)]
struct Viewer {
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
            viewers: Mutex::default(),
        });
        state.taps.insert(point, Arc::downgrade(&tap));
        tap
    }

    /// Looks at the taps that `selects` returns `true` for.
    pub fn look(&self, selects: impl Fn(&TapPoint) -> bool) -> Result<Look, LookError> {
        let mut state = self.0.lock();
        let selected = state.taps.iter().filter(|(point, _)| selects(point));
        let taps: Vec<Arc<Tap>> = selected.filter_map(|(_, tap)| tap.upgrade()).collect();
        if taps.is_empty() {
            return Err(LookError::NoTap);
        }
        state.looks.retain(|look| look.strong_count() > 0);
        if state.looks.len() == MAX_LOOKS {
            return Err(LookError::TooMany);
        }
        let viewer = Arc::new(Viewer::default());
        state.looks.push(Arc::downgrade(&viewer));
        for tap in &taps {
            tap.add(&viewer);
        }
        Ok(Look { viewer, taps })
    }
}

impl fmt::Debug for Taps {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} taps", self.0.lock().taps.len())
    }
}

// === impl Tap ===

impl Tap {
    /// Shows a batch to those who look.
    pub fn pass(&self, batch: &Batch) {
        if self.is_watched.load(Ordering::Relaxed) {
            self.show(batch);
        }
    }

    fn show(&self, batch: &Batch) {
        let bytes = batch.profiles.heap_size();
        for viewer in &*self.viewers.lock() {
            viewer.offer(bytes, || Passed {
                point: self.point.clone(),
                time: SystemTime::now(),
                batch: batch.detached(),
            });
        }
    }

    fn add(&self, viewer: &Arc<Viewer>) {
        let mut viewers = self.viewers.lock();
        viewers.push(Arc::clone(viewer));
        self.is_watched.store(true, Ordering::Relaxed);
    }

    fn remove(&self, viewer: &Arc<Viewer>) {
        let mut viewers = self.viewers.lock();
        viewers.retain(|other| !Arc::ptr_eq(other, viewer));
        self.is_watched
            .store(!viewers.is_empty(), Ordering::Relaxed);
    }
}

// === impl Look ===

impl Look {
    /// The next batch. Cancel-safe.
    pub async fn next(&self) -> Passed {
        loop {
            if let Some(passed) = self.viewer.take() {
                return passed;
            }
            self.viewer.arrived.notified().await;
        }
    }

    /// Batches that passed while too many others waited to be taken.
    pub fn missed(&self) -> u64 {
        self.viewer.held.lock().missed
    }
}

impl Drop for Look {
    fn drop(&mut self) {
        for tap in &self.taps {
            tap.remove(&self.viewer);
        }
    }
}

// === impl Viewer ===

impl Viewer {
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

    /// Samples of the batches that the viewer has got but not taken.
    fn taken(look: &Look) -> Vec<usize> {
        let passed = std::iter::from_fn(|| look.viewer.take());
        passed.map(|it| it.batch.profiles.sample_count()).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn a_viewer_waits_for_the_next_batch() {
        let taps = Taps::default();
        let tap = taps.tap(point("a", Side::Input));
        let look = taps.look(|_| true).unwrap();
        let later = async {
            tokio::time::sleep(std::time::Duration::from_secs(1)).await;
            tap.pass(&batch(6));
        };
        let (passed, ()) = tokio::join!(look.next(), later);
        assert_eq!(passed.batch.profiles.sample_count(), 6);
        assert_eq!(passed.point, point("a", Side::Input));
    }

    #[test]
    fn those_who_look_see_what_passes_the_selected_taps() {
        let taps = Taps::default();
        let [a, b] = ["a", "b"].map(|id| taps.tap(point(id, Side::Input)));
        a.pass(&batch(1));
        let of_a = taps.look(|point| point.id == "a").unwrap();
        let all = taps.look(|_| true).unwrap();
        a.pass(&batch(2));
        b.pass(&batch(3));
        assert_eq!((taken(&of_a), taken(&all)), (vec![2], vec![2, 3]));
        assert_eq!(taps.look(|it| it.id == "c").err(), Some(LookError::NoTap));
    }

    #[test]
    fn a_tap_is_idle_before_and_after_a_look() {
        let taps = Taps::default();
        let tap = taps.tap(point("a", Side::Input));
        let is_watched = || tap.is_watched.load(Ordering::Relaxed);
        assert!(!is_watched());
        let [one, other] = [(); 2].map(|()| taps.look(|_| true).unwrap());
        drop(one);
        assert!(is_watched());
        drop(other);
        assert!(!is_watched() && tap.viewers.lock().is_empty());
    }

    #[test]
    fn a_slow_viewer_misses_batches_and_holds_few() {
        let taps = Taps::default();
        let tap = taps.tap(point("a", Side::Input));
        let [slow, fast] = [(); 2].map(|()| taps.look(|_| true).unwrap());
        for _ in 0..MAX_HELD_BATCHES + 3 {
            tap.pass(&batch(1));
            assert_eq!(taken(&fast), [1]);
        }
        assert_eq!((slow.missed(), fast.missed()), (3, 0));
        assert_eq!(taken(&slow).len(), MAX_HELD_BATCHES);
        // One that is too large is still shown, alone.
        for _ in 0..2 {
            slow.viewer.offer(MAX_HELD_BYTES + 1, || Passed {
                point: point("a", Side::Input),
                time: SystemTime::now(),
                batch: batch(5),
            });
        }
        assert_eq!((taken(&slow), slow.missed()), (vec![5], 4));
    }

    #[test]
    fn the_number_of_looks_is_bounded() {
        let taps = Taps::default();
        let _tap = taps.tap(point("a", Side::Input));
        let mut looks: Vec<Look> = (0..MAX_LOOKS)
            .map(|_| taps.look(|_| true).unwrap())
            .collect();
        assert_eq!(taps.look(|_| true).err(), Some(LookError::TooMany));
        looks.pop();
        assert!(taps.look(|_| true).is_ok());
    }

    #[test]
    fn a_replaced_component_has_the_same_tap_and_one_that_left_has_none() {
        let taps = Taps::default();
        let old = taps.tap(point("a", Side::Output));
        let look = taps.look(|_| true).unwrap();
        let new = taps.tap(point("a", Side::Output));
        drop(old);
        new.pass(&batch(4));
        assert_eq!(taken(&look), [4]);
        drop((look, new));
        assert_eq!(taps.look(|_| true).err(), Some(LookError::NoTap));
    }

    #[test]
    fn a_look_does_not_touch_the_outcome() {
        let taps = Taps::default();
        let tap = taps.tap(point("a", Side::Input));
        let look = taps.look(|_| true).unwrap();
        let (mut batch, outcomes) = batch_with_outcomes(1);
        tap.pass(&batch);
        drop(taken(&look));
        assert_eq!(outcomes.seen(), []);
        std::mem::take(&mut batch.finalizers).settle(Outcome::Delivered);
        assert_eq!(outcomes.seen(), [Outcome::Delivered]);
    }
}
