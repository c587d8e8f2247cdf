//! Places that wait for the workers, the hottest first.
//!
//! On a busy host a worker gets little of a CPU, and names what most samples have before the rest. What a batch
//! asked for stays until it has an answer: batches that ask again add to its weight.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError, Weak};
use std::time::Duration;

use profcol_component::{Code, CodeAddress};
use tokio::sync::Notify;

use super::asked::Module;
use crate::shared::locks::lock;

/// Places that are taken at once, of one executable.
const CHUNK: usize = 64;

/// About what a place takes.
pub(super) const PLACE_BYTES: usize = 80;

pub(super) struct Backlog {
    state: Mutex<State>,
    changed: Condvar,
    max_places: usize,
    workers: usize,
}

#[derive(Default)]
struct State {
    modules: HashMap<Arc<str>, Waiting>,
    places: usize,
    is_closed: bool,
}

/// An executable with places that wait.
struct Waiting {
    module: Module,
    places: HashMap<CodeAddress, Asked>,
    /// Of all its places.
    weight: u64,
    /// What it has taken of its worker so far.
    spent: Duration,
    worker: usize,
}

#[derive(Default)]
struct Asked {
    weight: u64,
    waits: Vec<Weak<Wait>>,
}

/// Places of one executable, in the order of their addresses.
#[derive(Debug)]
pub(super) struct Job {
    pub module: Module,
    pub places: Vec<CodeAddress>,
}

/// What a batch waits for: the answers that are missing.
#[derive(Default)]
pub(super) struct Wait {
    missing: AtomicUsize,
    is_done: Notify,
}

// === impl Backlog ===

impl Backlog {
    pub fn new(workers: usize, max_places: usize) -> Self {
        Self {
            state: Mutex::default(),
            changed: Condvar::new(),
            max_places,
            workers: workers.max(1),
        }
    }

    /// Asks for places, each with how much it weighs. What finds no room is left out.
    pub fn ask(
        &self,
        module: &Module,
        places: impl Iterator<Item = (CodeAddress, u64)>,
        wait: Option<&Arc<Wait>>,
    ) {
        let mut state = lock(&self.state);
        if state.is_closed {
            return;
        }
        let State {
            modules,
            places: total,
            ..
        } = &mut *state;
        let build_id = &module.build_id;
        let waiting = modules
            .entry(Arc::clone(build_id))
            .or_insert_with(|| Waiting::new(worker_of(build_id, self.workers), module));
        // Processes that had it before may be gone.
        waiting.module = module.clone();
        for (place, weight) in places {
            if !waiting.places.contains_key(&place) {
                if *total >= self.max_places {
                    continue;
                }
                *total += 1;
            }
            let asked = waiting.places.entry(place).or_default();
            asked.weight = asked.weight.saturating_add(weight);
            waiting.weight = waiting.weight.saturating_add(weight);
            if let Some(wait) = wait {
                wait.missing.fetch_add(1, Ordering::Relaxed);
                asked.waits.retain(|wait| wait.strong_count() > 0);
                asked.waits.push(Arc::downgrade(wait));
            }
        }
        if waiting.places.is_empty() {
            modules.remove(build_id);
        }
        self.changed.notify_all();
    }

    /// The hottest places of the executable that is next; waits for some. None once it is closed.
    pub fn take(&self, worker: usize) -> Option<Job> {
        let mut state = lock(&self.state);
        loop {
            if state.is_closed {
                return None;
            }
            let own = state.modules.values().filter(|it| it.worker == worker);
            if let Some(next) = own.max_by(|a, b| a.urgency().total_cmp(&b.urgency())) {
                return Some(next.job());
            }
            state = self
                .changed
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Those who wait for the place find the answer among the names.
    pub fn answered(&self, code: &Code) {
        let mut state = lock(&self.state);
        let State {
            modules, places, ..
        } = &mut *state;
        let Some(waiting) = modules.get_mut(&code.build_id) else {
            return;
        };
        let Some(asked) = waiting.places.remove(&code.place) else {
            return;
        };
        *places -= 1;
        waiting.weight = waiting.weight.saturating_sub(asked.weight);
        if waiting.places.is_empty() {
            modules.remove(&code.build_id);
        }
        drop(state);
        for wait in asked.waits.iter().filter_map(Weak::upgrade) {
            wait.answered();
        }
    }

    /// Notes what an executable took of its worker, so that others have their turn.
    pub fn spend(&self, build_id: &str, time: Duration) {
        if let Some(waiting) = lock(&self.state).modules.get_mut(build_id) {
            waiting.spent += time;
        }
    }

    pub fn contains(&self, code: &Code) -> bool {
        let state = lock(&self.state);
        let waiting = state.modules.get(&code.build_id);
        waiting.is_some_and(|waiting| waiting.places.contains_key(&code.place))
    }

    pub fn is_empty(&self) -> bool {
        lock(&self.state).places == 0
    }

    /// Nobody is answered any more.
    pub fn close(&self) {
        let mut state = lock(&self.state);
        state.is_closed = true;
        self.changed.notify_all();
    }
}

impl Waiting {
    fn new(worker: usize, module: &Module) -> Self {
        Self {
            module: module.clone(),
            places: HashMap::new(),
            weight: 0,
            spent: Duration::ZERO,
            worker,
        }
    }

    /// The heaviest goes first, but none for ever: what it took counts against it.
    fn urgency(&self) -> f64 {
        self.weight as f64 / (1.0 + self.spent.as_secs_f64())
    }

    fn job(&self) -> Job {
        let mut places: Vec<(u64, CodeAddress)> = self
            .places
            .iter()
            .map(|(place, asked)| (asked.weight, *place))
            .collect();
        if places.len() > CHUNK {
            places.select_nth_unstable_by(CHUNK - 1, |a, b| b.0.cmp(&a.0));
            places.truncate(CHUNK);
        }
        let mut places: Vec<CodeAddress> = places.into_iter().map(|(_, place)| place).collect();
        // Neighbours mostly are of one unit.
        places.sort_unstable_by_key(|place| match place {
            CodeAddress::Virtual(at) | CodeAddress::FileOffset(at) => *at,
        });
        Job {
            module: self.module.clone(),
            places,
        }
    }
}

/// Each executable is always one worker's, which holds its tables.
fn worker_of(build_id: &str, workers: usize) -> usize {
    use std::hash::{DefaultHasher, Hash, Hasher};
    let mut hasher = DefaultHasher::new();
    build_id.hash(&mut hasher);
    hasher.finish() as usize % workers
}

// === impl Wait ===

impl Wait {
    fn answered(&self) {
        if self.missing.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.is_done.notify_one();
        }
    }

    /// Until everything is answered.
    pub async fn end(&self) {
        while self.missing.load(Ordering::Acquire) > 0 {
            self.is_done.notified().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn module(build_id: &str) -> Module {
        Module {
            build_id: build_id.into(),
            path: "/code".into(),
            processes: Vec::new(),
        }
    }

    fn code(build_id: &str, at: u64) -> Code {
        Code {
            build_id: build_id.into(),
            place: CodeAddress::Virtual(at),
        }
    }

    fn ask(backlog: &Backlog, build_id: &str, places: &[(u64, u64)]) {
        let places = places
            .iter()
            .map(|&(at, weight)| (CodeAddress::Virtual(at), weight));
        backlog.ask(&module(build_id), places, None);
    }

    /// What a worker would do until nothing waits: the executables and how many of their places at once.
    fn order(backlog: &Backlog, each_takes: Duration) -> Vec<(String, usize)> {
        let mut order = Vec::new();
        while !backlog.is_empty() {
            let job = backlog.take(0).unwrap();
            let build_id = &job.module.build_id;
            order.push((build_id.to_string(), job.places.len()));
            backlog.spend(build_id, each_takes);
            for place in job.places {
                backlog.answered(&Code {
                    build_id: Arc::clone(build_id),
                    place,
                });
            }
        }
        order
    }

    #[test]
    fn takes_the_hottest_executable_first() {
        let backlog = Backlog::new(1, 1000);
        ask(&backlog, "cold", &[(1, 2), (2, 1)]);
        ask(&backlog, "hot", &[(1, 9)]);
        ask(&backlog, "warm", &[(1, 4)]);
        // Asked for again by each batch, it becomes hot.
        ask(&backlog, "cold", &[(1, 2)]);
        let order = order(&backlog, Duration::ZERO);
        let expected = [("hot", 1), ("cold", 2), ("warm", 1)];
        assert_eq!(order, expected.map(|(id, places)| (id.to_owned(), places)));
        assert!(!backlog.contains(&code("cold", 1)));
    }

    #[test]
    fn takes_the_hottest_places_first_and_neighbours_together() {
        let backlog = Backlog::new(1, 1000);
        let cold: Vec<(u64, u64)> = (0..100).map(|at| (at, 1)).collect();
        let hot: Vec<(u64, u64)> = (500..500 + CHUNK as u64).rev().map(|at| (at, 2)).collect();
        ask(&backlog, "a", &cold);
        ask(&backlog, "a", &hot);
        let job = backlog.take(0).unwrap();
        let expected: Vec<CodeAddress> = (500..500 + CHUNK as u64)
            .map(CodeAddress::Virtual)
            .collect();
        assert_eq!(job.places, expected);
    }

    #[test]
    fn an_executable_that_takes_long_does_not_hold_up_the_others_for_ever() {
        let backlog = Backlog::new(1, 1000);
        let places: Vec<(u64, u64)> = (0..10 * CHUNK as u64).map(|at| (at, 10)).collect();
        ask(&backlog, "giant", &places[..900.min(places.len())]);
        ask(&backlog, "small", &[(1, 1000)]);
        let order = order(&backlog, Duration::from_secs(4));
        let small = order.iter().position(|(build_id, _)| build_id == "small");
        assert!(small < Some(4), "{order:?}");
    }

    #[test]
    fn holds_no_more_places_than_it_may() {
        let backlog = Backlog::new(1, 2);
        ask(&backlog, "a", &[(1, 1), (2, 1), (3, 1), (1, 1)]);
        ask(&backlog, "b", &[(1, 1)]);
        let held = [code("a", 1), code("a", 2), code("a", 3), code("b", 1)];
        let held = held.map(|code| backlog.contains(&code));
        assert_eq!(held, [true, true, false, false]);
        backlog.answered(&code("a", 1));
        ask(&backlog, "b", &[(1, 1)]);
        assert!(backlog.contains(&code("b", 1)));
    }

    #[tokio::test]
    async fn all_who_asked_for_a_place_are_answered() {
        let backlog = Backlog::new(1, 10);
        let waits = [(); 2].map(|()| Arc::<Wait>::default());
        for wait in &waits {
            let places = [(CodeAddress::Virtual(1), 1), (CodeAddress::Virtual(2), 1)];
            backlog.ask(&module("a"), places.into_iter(), Some(wait));
        }
        backlog.answered(&code("a", 1));
        assert_eq!(waits[0].missing.load(Ordering::Relaxed), 1);
        backlog.answered(&code("a", 2));
        for wait in waits {
            wait.end().await;
        }
    }

    #[test]
    fn a_worker_ends_when_it_is_closed() {
        let backlog = Backlog::new(1, 10);
        ask(&backlog, "a", &[(1, 1)]);
        backlog.close();
        assert!(backlog.take(0).is_none());
    }
}
