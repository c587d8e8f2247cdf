//! Merged recordings that exporters gave up on, until their sources push them again.
//!
//! A source pushes each of its recordings again, and these would be merged with others. Then nobody could tell which
//! exporters have some of the result already. So the first recording that returns brings all of the old merged batch back,
//! with its ids, and those that follow it wait for the same outcome.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use profcol_component::{Batch, BatchId, Finalizer, Finalizers, IntCounter, Outcome, Source};
use tokio::time::Instant;

/// How long to wait for a source. They push again after half a minute at most, and then until there is room.
const WINDOW: Duration = Duration::from_secs(300);

/// Maximum number of merged batches. Their sources hold the same content, within their `max_in_flight`.
pub(super) const MAX_GROUPS: usize = 1024;

pub(super) struct ResentRecordings {
    given_up: Mutex<GivenUpGroups>,
    forgotten: IntCounter,
}

#[derive(Default)]
struct GivenUpGroups {
    by_member: HashMap<BatchId, Arc<Group>>,
    /// In the order in which they were given up on, with the time.
    groups: VecDeque<(Instant, Arc<Group>)>,
}

/// The recordings that were merged with each other.
struct Group {
    members: Vec<BatchId>,
    state: Mutex<State>,
}

enum State {
    GivenUp {
        pieces: Vec<Batch>,
        /// The worst outcome of the other pieces.
        others: Outcome,
    },
    Sent {
        /// The batches that wait for the outcome.
        members: Vec<BatchId>,
        waiting: Finalizers,
        /// The worst outcome of the pieces that needed no other attempt.
        others: Outcome,
    },
    Settled(Outcome),
}

/// Collects the outcomes of the pieces. Each of their finalizers holds a reference.
struct Attempt {
    resent: Arc<ResentRecordings>,
    group: Arc<Group>,
    outcomes: Mutex<Vec<(Batch, Outcome)>>,
}

// === impl ResentRecordings ===

impl ResentRecordings {
    pub(super) fn new(forgotten: IntCounter) -> Arc<Self> {
        Arc::new(Self {
            given_up: Mutex::default(),
            forgotten,
        })
    }

    /// Follows the pieces of a batch that was merged from these recordings.
    pub(super) fn follow(
        self: &Arc<Self>,
        members: Vec<BatchId>,
        mut pieces: Vec<Batch>,
    ) -> Vec<Batch> {
        let mut waiting = Finalizers::default();
        for piece in &mut pieces {
            waiting.append(std::mem::take(&mut piece.finalizers));
        }
        let state = Mutex::new(State::Sent {
            members: members.clone(),
            waiting,
            others: Outcome::Delivered,
        });
        let group = Arc::new(Group { members, state });
        self.send(group, pieces)
    }

    /// Returns what to send instead if a source has pushed this recording before, and takes its finalizers.
    pub(super) fn resend(self: &Arc<Self>, batch: &mut Batch) -> Option<Vec<Batch>> {
        let member = batch
            .resend_id
            .filter(|_| batch.source == Source::Recorded)?;
        let group = Arc::clone(self.given_up.lock().by_member.get(&member)?);
        let finalizers = std::mem::take(&mut batch.finalizers);
        let mut state = group.state.lock();
        match &mut *state {
            State::GivenUp { pieces, others } => {
                let (pieces, others) = (std::mem::take(pieces), *others);
                *state = State::Sent {
                    members: vec![member],
                    waiting: finalizers,
                    others,
                };
                drop(state);
                Some(self.send(group, pieces))
            }
            State::Sent {
                members, waiting, ..
            } => {
                members.push(member);
                waiting.append(finalizers);
                Some(Vec::new())
            }
            State::Settled(outcome) => {
                let outcome = *outcome;
                drop(state);
                self.given_up.lock().remove(&[member], &group);
                finalizers.settle(outcome);
                Some(Vec::new())
            }
        }
    }

    fn send(self: &Arc<Self>, group: Arc<Group>, pieces: Vec<Batch>) -> Vec<Batch> {
        let attempt = Arc::new(Attempt {
            resent: Arc::clone(self),
            group,
            outcomes: Mutex::default(),
        });
        let pieces = pieces.into_iter().map(|mut piece| {
            let (kept, attempt) = (piece.detached(), Arc::clone(&attempt));
            piece.finalizers.add(Finalizer::new(move |outcome| {
                attempt.outcomes.lock().push((kept, outcome));
            }));
            piece
        });
        pieces.collect()
    }

    /// Remembers a group that exporters gave up on.
    fn remember(&self, group: &Arc<Group>) {
        let mut given_up = self.given_up.lock();
        given_up
            .groups
            .retain(|(_, other)| !Arc::ptr_eq(other, group));
        given_up
            .groups
            .push_back((Instant::now(), Arc::clone(group)));
        for member in &group.members {
            given_up.by_member.insert(*member, Arc::clone(group));
        }
        while let Some((since, _)) = given_up.groups.front()
            && (given_up.groups.len() > MAX_GROUPS || since.elapsed() >= WINDOW)
        {
            let Some((_, oldest)) = given_up.groups.pop_front() else {
                break;
            };
            if given_up.remove(&oldest.members, &oldest) {
                self.forgotten.inc();
            }
        }
    }
}

// === impl GivenUpGroups ===

impl GivenUpGroups {
    /// Returns whether one was removed. A group without members is gone.
    fn remove(&mut self, members: &[BatchId], group: &Arc<Group>) -> bool {
        let mut removed = false;
        for member in members {
            removed |= self.by_member.remove(member).is_some();
        }
        let is_needed = |it: &BatchId| self.by_member.contains_key(it);
        if removed && !group.members.iter().any(is_needed) {
            self.groups.retain(|(_, other)| !Arc::ptr_eq(other, group));
        }
        removed
    }
}

// === impl Attempt ===

impl Drop for Attempt {
    fn drop(&mut self) {
        let outcomes = std::mem::take(self.outcomes.get_mut());
        let (settled, open): (Vec<_>, Vec<_>) = outcomes
            .into_iter()
            .partition(|(_, outcome)| outcome.is_final());
        let worst = |outcomes: &[(Batch, Outcome)]| outcomes.iter().map(|it| it.1).max();
        let mut state = self.group.state.lock();
        let State::Sent {
            members,
            waiting,
            others,
        } = &mut *state
        else {
            return;
        };
        let (members, waiting) = (std::mem::take(members), std::mem::take(waiting));
        let others = worst(&settled).map_or(*others, |settled| settled.max(*others));
        // What can still be delivered decides.
        let outcome = worst(&open).unwrap_or(others);
        let pieces: Vec<Batch> = open.into_iter().map(|(piece, _)| piece).collect();
        *state = match pieces.is_empty() {
            true => State::Settled(outcome),
            false => State::GivenUp { pieces, others },
        };
        drop(state);
        match outcome.is_final() {
            true => {
                self.resent.given_up.lock().remove(&members, &self.group);
            }
            false => self.resent.remember(&self.group),
        }
        waiting.settle(outcome);
    }
}
