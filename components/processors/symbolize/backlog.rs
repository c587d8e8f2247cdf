//! The queue of addresses for the workers, hottest first.
//!
//! On a busy host a worker gets little CPU time, so it resolves the addresses with the most samples first. A request
//! stays until it is answered; further batches that request the same address add to its weight.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use profcol_component::{CodeAddress, ExecutableAddress};
use tokio::sync::Notify;

use super::unresolved::Module;

/// Number of addresses taken at once, of one executable.
const CHUNK: usize = 64;

/// Approximate size of an address.
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
    addresses: usize,
    is_closed: bool,
}

/// An executable with pending addresses.
struct Waiting {
    module: Module,
    addresses: HashMap<CodeAddress, PendingAddress>,
    /// The sum over its addresses.
    weight: u64,
    /// CPU time that it has used of its worker so far.
    spent: Duration,
    worker: usize,
}

#[derive(Default)]
struct PendingAddress {
    weight: u64,
    waits: Vec<Weak<Wait>>,
}

/// Addresses of one executable, sorted by address.
#[derive(Debug)]
pub(super) struct Job {
    pub module: Module,
    pub addresses: Vec<CodeAddress>,
}

/// The number of answers that a batch still waits for.
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

    /// Requests addresses, each with its weight. Requests beyond the limit are dropped.
    pub fn ask(
        &self,
        module: &Module,
        addresses: impl Iterator<Item = (CodeAddress, u64)>,
        wait: Option<&Arc<Wait>>,
    ) {
        let mut state = self.state.lock();
        if state.is_closed {
            return;
        }
        let State {
            modules,
            addresses: total,
            ..
        } = &mut *state;
        let build_id = &module.build_id;
        let waiting = modules
            .entry(Arc::clone(build_id))
            .or_insert_with(|| Waiting::new(worker_of(build_id, self.workers), module));
        // The previous processes may have exited.
        waiting.module = module.clone();
        for (address, weight) in addresses {
            if !waiting.addresses.contains_key(&address) {
                if *total >= self.max_places {
                    continue;
                }
                *total += 1;
            }
            let pending = waiting.addresses.entry(address).or_default();
            pending.weight = pending.weight.saturating_add(weight);
            waiting.weight = waiting.weight.saturating_add(weight);
            if let Some(wait) = wait {
                wait.missing.fetch_add(1, Ordering::Relaxed);
                pending.waits.retain(|wait| wait.strong_count() > 0);
                pending.waits.push(Arc::downgrade(wait));
            }
        }
        if waiting.addresses.is_empty() {
            modules.remove(build_id);
        }
        self.changed.notify_all();
    }

    /// Takes the hottest addresses of the next executable; blocks until there are some. `None` once closed.
    pub fn take(&self, worker: usize) -> Option<Job> {
        let mut state = self.state.lock();
        loop {
            if state.is_closed {
                return None;
            }
            let own = state.modules.values().filter(|it| it.worker == worker);
            if let Some(next) = own.max_by(|a, b| a.urgency().total_cmp(&b.urgency())) {
                return Some(next.job());
            }
            self.changed.wait(&mut state);
        }
    }

    /// Batches that wait for the address find the answer in `Names`.
    pub fn answered(&self, code: &ExecutableAddress) {
        let mut state = self.state.lock();
        let State {
            modules, addresses, ..
        } = &mut *state;
        let Some(waiting) = modules.get_mut(&code.build_id) else {
            return;
        };
        let Some(pending) = waiting.addresses.remove(&code.address) else {
            return;
        };
        *addresses -= 1;
        waiting.weight = waiting.weight.saturating_sub(pending.weight);
        if waiting.addresses.is_empty() {
            modules.remove(&code.build_id);
        }
        drop(state);
        for wait in pending.waits.iter().filter_map(Weak::upgrade) {
            wait.answered();
        }
    }

    /// Records the CPU time that an executable used, so that others have their turn.
    pub fn spend(&self, build_id: &str, time: Duration) {
        if let Some(waiting) = self.state.lock().modules.get_mut(build_id) {
            waiting.spent += time;
        }
    }

    pub fn contains(&self, code: &ExecutableAddress) -> bool {
        let state = self.state.lock();
        let waiting = state.modules.get(&code.build_id);
        waiting.is_some_and(|waiting| waiting.addresses.contains_key(&code.address))
    }

    pub fn is_empty(&self) -> bool {
        self.state.lock().addresses == 0
    }

    /// Ends all waits.
    pub fn close(&self) {
        let mut state = self.state.lock();
        state.is_closed = true;
        self.changed.notify_all();
    }
}

impl Waiting {
    fn new(worker: usize, module: &Module) -> Self {
        Self {
            module: module.clone(),
            addresses: HashMap::new(),
            weight: 0,
            spent: Duration::ZERO,
            worker,
        }
    }

    /// The heaviest executable goes first, but its CPU time counts against it.
    fn urgency(&self) -> f64 {
        self.weight as f64 / (1.0 + self.spent.as_secs_f64())
    }

    fn job(&self) -> Job {
        let mut addresses: Vec<(u64, CodeAddress)> = self
            .addresses
            .iter()
            .map(|(address, pending)| (pending.weight, *address))
            .collect();
        if addresses.len() > CHUNK {
            addresses.select_nth_unstable_by(CHUNK - 1, |a, b| b.0.cmp(&a.0));
            addresses.truncate(CHUNK);
        }
        let mut addresses: Vec<CodeAddress> =
            addresses.into_iter().map(|(_, address)| address).collect();
        // Neighbors are mostly in the same unit.
        addresses.sort_unstable_by_key(|address| match address {
            CodeAddress::Virtual(at) | CodeAddress::FileOffset(at) => *at,
        });
        Job {
            module: self.module.clone(),
            addresses,
        }
    }
}

/// Each executable always has the same worker, which holds its tables.
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

    /// Waits until everything is answered.
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

    fn code(build_id: &str, at: u64) -> ExecutableAddress {
        ExecutableAddress {
            build_id: build_id.into(),
            address: CodeAddress::Virtual(at),
        }
    }

    fn ask(backlog: &Backlog, build_id: &str, addresses: &[(u64, u64)]) {
        let addresses = addresses
            .iter()
            .map(|&(at, weight)| (CodeAddress::Virtual(at), weight));
        backlog.ask(&module(build_id), addresses, None);
    }

    /// Takes jobs like a worker until the backlog is empty; returns the executables and the number of addresses
    /// in each job.
    fn order(backlog: &Backlog, each_takes: Duration) -> Vec<(String, usize)> {
        let mut order = Vec::new();
        while !backlog.is_empty() {
            let job = backlog.take(0).unwrap();
            let build_id = &job.module.build_id;
            order.push((build_id.to_string(), job.addresses.len()));
            backlog.spend(build_id, each_takes);
            for address in job.addresses {
                backlog.answered(&ExecutableAddress {
                    build_id: Arc::clone(build_id),
                    address,
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
        // Requested again, it becomes hot.
        ask(&backlog, "cold", &[(1, 2)]);
        let order = order(&backlog, Duration::ZERO);
        let expected = [("hot", 1), ("cold", 2), ("warm", 1)];
        assert_eq!(
            order,
            expected.map(|(id, addresses)| (id.to_owned(), addresses))
        );
        assert!(!backlog.contains(&code("cold", 1)));
    }

    #[test]
    fn takes_the_hottest_places_first_and_neighbors_together() {
        let backlog = Backlog::new(1, 1000);
        let cold: Vec<(u64, u64)> = (0..100).map(|at| (at, 1)).collect();
        let hot: Vec<(u64, u64)> = (500..500 + CHUNK as u64).rev().map(|at| (at, 2)).collect();
        ask(&backlog, "a", &cold);
        ask(&backlog, "a", &hot);
        let job = backlog.take(0).unwrap();
        let expected: Vec<CodeAddress> = (500..500 + CHUNK as u64)
            .map(CodeAddress::Virtual)
            .collect();
        assert_eq!(job.addresses, expected);
    }

    #[test]
    fn a_slow_executable_does_not_starve_the_others() {
        let backlog = Backlog::new(1, 1000);
        let addresses: Vec<(u64, u64)> = (0..10 * CHUNK as u64).map(|at| (at, 10)).collect();
        ask(&backlog, "giant", &addresses[..900.min(addresses.len())]);
        ask(&backlog, "small", &[(1, 1000)]);
        let order = order(&backlog, Duration::from_secs(4));
        let small = order.iter().position(|(build_id, _)| build_id == "small");
        assert!(small < Some(4), "{order:?}");
    }

    #[test]
    fn the_number_of_places_is_bounded() {
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
    async fn all_waits_for_a_place_are_answered() {
        let backlog = Backlog::new(1, 10);
        let waits = [(); 2].map(|()| Arc::<Wait>::default());
        for wait in &waits {
            let addresses = [(CodeAddress::Virtual(1), 1), (CodeAddress::Virtual(2), 1)];
            backlog.ask(&module("a"), addresses.into_iter(), Some(wait));
        }
        backlog.answered(&code("a", 1));
        assert_eq!(waits[0].missing.load(Ordering::Relaxed), 1);
        backlog.answered(&code("a", 2));
        for wait in waits {
            wait.end().await;
        }
    }

    #[test]
    fn closing_ends_the_workers() {
        let backlog = Backlog::new(1, 10);
        ask(&backlog, "a", &[(1, 1)]);
        backlog.close();
        assert!(backlog.take(0).is_none());
    }
}
