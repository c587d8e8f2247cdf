//! Processes that nobody wants: what processors tell the receiver that samples them, so that it
//! need not go on for nothing.
//!
//! A processor that drops a whole process says so; once every pipeline of a receiver did, the
//! receiver is told. What they speak of is a [`Sighting`], one process in one profile, so that a
//! decision never reaches another process that has the number later, nor the same one after it
//! became something else by an exec: whose profile it was, the receiver knows.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use profcol_config::PipelineId;

/// How many sightings a receiver's board holds; the oldest are forgotten, which costs no more than
/// that the process is sampled once more.
const MOST_SIGHTINGS: usize = 4096;

/// One process in one profile of one receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Sighting {
    /// The resource's `process.pid`.
    pub pid: i64,
    /// The profile's `time_unix_nano`: no two intervals of a receiver begin at the same one.
    pub time: u64,
}

/// A process that all pipelines of a receiver drop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dropped {
    pub sighting: Sighting,
    pub until: Until,
}

/// How long a process stays dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Until {
    /// A time as profiles have it, `time_unix_nano`.
    Time(u64),
    /// As long as it is what it is.
    Gone,
}

/// What a component is given: the board of all, and the pipelines that it is in or feeds.
#[derive(Clone, Debug, Default)]
pub struct Unwanted {
    board: Arc<Mutex<Board>>,
    pipelines: Arc<[PipelineId]>,
}

/// Where a processor says what it drops.
#[derive(Clone, Debug)]
pub struct Reporter(Unwanted);

/// Where a receiver learns what all of its pipelines drop.
#[derive(Debug)]
pub struct Follower {
    board: Arc<Mutex<Board>>,
    place: usize,
}

#[derive(Debug, Default)]
struct Board {
    /// Pipelines with a processor that may drop processes.
    reporting: BTreeSet<PipelineId>,
    followed: Vec<Followed>,
}

#[derive(Debug)]
struct Followed {
    pipelines: Arc<[PipelineId]>,
    /// Which of the pipelines have dropped it so far.
    dropped_by: HashMap<Sighting, BTreeMap<PipelineId, Until>>,
    /// In the order in which they were first dropped.
    order: VecDeque<Sighting>,
    by_all: VecDeque<Dropped>,
}

impl Unwanted {
    /// The same board, for a component in these pipelines.
    pub fn within(&self, pipelines: impl IntoIterator<Item = PipelineId>) -> Self {
        Self {
            board: Arc::clone(&self.board),
            pipelines: pipelines.into_iter().collect(),
        }
    }

    /// For processors, when they are built.
    pub fn reporter(&self) -> Reporter {
        lock(&self.board)
            .reporting
            .extend(self.pipelines.iter().cloned());
        Reporter(self.clone())
    }

    /// For receivers, when they are built, which is after all processors were. `None` where one of
    /// the pipelines takes everything.
    pub fn follow(&self) -> Option<Follower> {
        let mut board = lock(&self.board);
        let may_drop = |pipeline| board.reporting.contains(pipeline);
        if self.pipelines.is_empty() || !self.pipelines.iter().all(may_drop) {
            return None;
        }
        board.followed.push(Followed {
            pipelines: Arc::clone(&self.pipelines),
            dropped_by: HashMap::new(),
            order: VecDeque::new(),
            by_all: VecDeque::new(),
        });
        Some(Follower {
            board: Arc::clone(&self.board),
            place: board.followed.len() - 1,
        })
    }
}

impl Reporter {
    /// Everything of this process was dropped, and would be again as long as it is what it is.
    pub fn drops(&self, sighting: Sighting) {
        self.drops_until(sighting, Until::Gone);
    }

    /// Everything of this process was dropped, and would be again up to that time.
    pub fn drops_until(&self, sighting: Sighting, until: Until) {
        let mut board = lock(&self.0.board);
        for followed in &mut board.followed {
            for pipeline in &*self.0.pipelines {
                followed.drops(pipeline, sighting, until);
            }
        }
    }
}

impl Follower {
    /// What all pipelines have dropped since the last time.
    pub fn take(&self) -> Vec<Dropped> {
        let mut board = lock(&self.board);
        let followed = board.followed.get_mut(self.place);
        followed.map_or_else(Vec::new, |followed| followed.by_all.drain(..).collect())
    }
}

impl Followed {
    fn drops(&mut self, pipeline: &PipelineId, sighting: Sighting, until: Until) {
        if !self.pipelines.contains(pipeline) {
            return;
        }
        let dropped_by = self.dropped_by.entry(sighting).or_insert_with(|| {
            self.order.push_back(sighting);
            BTreeMap::new()
        });
        let is_new = dropped_by.insert(pipeline.clone(), until).is_none();
        if is_new
            && dropped_by.len() == self.pipelines.len()
            && let Some(&until) = dropped_by.values().min()
        {
            self.by_all.push_back(Dropped { sighting, until });
        }
        if self.order.len() > MOST_SIGHTINGS
            && let Some(oldest) = self.order.pop_front()
        {
            self.dropped_by.remove(&oldest);
        }
        if self.by_all.len() > MOST_SIGHTINGS {
            self.by_all.pop_front();
        }
    }
}

fn lock(board: &Mutex<Board>) -> MutexGuard<'_, Board> {
    board.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pipeline(name: &str) -> PipelineId {
        name.parse().expect("is the name of a pipeline")
    }

    fn sighting(pid: i64) -> Sighting {
        Sighting { pid, time: 7 }
    }

    fn taken(follower: &Follower) -> Vec<Sighting> {
        let dropped = follower.take();
        dropped.iter().map(|dropped| dropped.sighting).collect()
    }

    #[test]
    fn a_receiver_learns_of_what_all_of_its_pipelines_drop() {
        let board = Unwanted::default();
        let (a, b, other) = (
            pipeline("profiles/a"),
            pipeline("profiles/b"),
            pipeline("profiles/other"),
        );
        let of_a = board.within([a.clone()]).reporter();
        let of_b = board.within([b.clone()]).reporter();
        let of_other = board.within([other]).reporter();
        let both = board.within([a.clone(), b]).follow().expect("may be told");
        let one = board.within([a]).follow().expect("may be told");

        of_a.drops(sighting(1));
        of_a.drops(sighting(1));
        of_other.drops(sighting(1));
        assert_eq!((taken(&both), taken(&one)), (vec![], vec![sighting(1)]));
        of_b.drops(Sighting {
            time: 8,
            ..sighting(1)
        });
        assert_eq!(taken(&both), [], "it is another profile");
        of_b.drops(sighting(1));
        assert_eq!((taken(&both), taken(&one)), (vec![sighting(1)], vec![]));
        of_b.drops(sighting(1));
        assert_eq!(taken(&both), [], "it is told once");
    }

    #[test]
    fn nobody_follows_where_a_pipeline_takes_everything() {
        let board = Unwanted::default();
        let (a, b) = (pipeline("profiles/a"), pipeline("profiles/b"));
        assert!(board.within([]).follow().is_none());
        assert!(board.within([a.clone()]).follow().is_none());
        board.within([a.clone()]).reporter();
        assert!(board.within([a.clone()]).follow().is_some());
        assert!(board.within([a, b]).follow().is_none());
    }

    #[test]
    fn the_oldest_are_forgotten() {
        let board = Unwanted::default();
        let (a, b) = (pipeline("profiles/a"), pipeline("profiles/b"));
        let of_a = board.within([a.clone()]).reporter();
        let of_b = board.within([b.clone()]).reporter();
        let both = board.within([a, b]).follow().expect("may be told");
        for pid in 0..=MOST_SIGHTINGS as i64 {
            of_a.drops(sighting(pid));
        }
        of_b.drops(sighting(0));
        of_b.drops(sighting(2));
        assert_eq!(taken(&both), [sighting(2)]);
    }

    #[test]
    fn a_process_is_dropped_for_as_long_as_all_drop_it() {
        let board = Unwanted::default();
        let (a, b) = (pipeline("profiles/a"), pipeline("profiles/b"));
        let of_a = board.within([a.clone()]).reporter();
        let of_b = board.within([b.clone()]).reporter();
        let both = board.within([a, b]).follow().expect("may be told");
        let check = |pid, of_a_until, of_b_until, expected| {
            of_a.drops_until(sighting(pid), of_a_until);
            of_b.drops_until(sighting(pid), of_b_until);
            let until: Vec<_> = both.take().iter().map(|it| it.until).collect();
            assert_eq!(until, [expected], "{of_a_until:?} and {of_b_until:?}");
        };
        check(1, Until::Time(5), Until::Time(6), Until::Time(5));
        check(2, Until::Gone, Until::Time(6), Until::Time(6));
        check(3, Until::Gone, Until::Gone, Until::Gone);
    }
}
