//! What is known of units and of their processes, within bounds.

use std::collections::HashSet;
use std::sync::{Arc, Mutex};

use profcol_component::IntCounter;
use tokio::sync::watch;

use super::runs::{Member, Run};
use crate::shared::generations::Generations;
use crate::shared::locks::lock;

/// So many units are known, and so many processes.
const UNITS: usize = 4096;
const MEMBERS: usize = 16_384;
/// So many units wait for being asked for.
const WANTED: usize = 1024;

/// What systemd told of a unit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct UnitInfo {
    pub description: Option<Arc<str>>,
    /// The last one.
    pub run: Option<Run>,
    /// When, in milliseconds since 1970.
    pub at: i64,
}

pub(super) struct Directory {
    known: Mutex<DirectoryState>,
    /// How many answers there have been.
    news: watch::Sender<u64>,
    dropped: IntCounter,
}

struct DirectoryState {
    units: Generations<String, Arc<UnitInfo>>,
    runs: Generations<Member, Arc<str>>,
    wanted: HashSet<String>,
}

/// What can be said of a process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ProcessUnitInfo {
    pub description: Option<Arc<str>>,
    /// The id of the unit's run.
    pub run: Option<Arc<str>>,
}

impl Directory {
    pub fn new(dropped: IntCounter) -> Self {
        Self {
            known: Mutex::new(DirectoryState {
                units: Generations::new(UNITS),
                runs: Generations::new(MEMBERS),
                wanted: HashSet::new(),
            }),
            news: watch::Sender::new(0),
            dropped,
        }
    }

    pub fn news(&self) -> watch::Receiver<u64> {
        self.news.subscribe()
    }

    /// Of what is known.
    pub fn version(&self) -> u64 {
        *self.news.borrow()
    }

    pub fn find(&self, member: &Member) -> ProcessUnitInfo {
        let mut known = lock(&self.known);
        let told = known.units.get(&member.unit);
        ProcessUnitInfo {
            run: known.run(member, told.as_deref()),
            description: told.and_then(|told| told.description.clone()),
        }
    }

    pub fn has_run(&self, member: &Member) -> bool {
        lock(&self.known).runs.get(member).is_some()
    }

    pub fn add_run(&self, member: Member, id: Arc<str>) {
        lock(&self.known).runs.insert(member, id, 1);
    }

    /// Notes the unit as wanted where systemd may know more than was told, and says how that question goes.
    pub fn question(&self, member: &Member) -> Option<String> {
        let mut known = lock(&self.known);
        let unit = &member.unit;
        let question = match known.units.get(unit) {
            None => unit.clone(),
            Some(told) => {
                // It was asked before there was this process, which may be of a later run.
                let process = member.process.filter(|it| it.created > told.at)?;
                let run = known.run(member, Some(&told));
                if run.is_some() && run == told.run.as_ref().map(|run| Arc::clone(&run.id)) {
                    return None;
                }
                format!("{unit} {} {}", process.pid, process.created)
            }
        };
        if known.wanted.len() < WANTED {
            known.wanted.insert(unit.clone());
        } else if !known.wanted.contains(unit) {
            self.dropped.inc();
        }
        Some(question)
    }

    pub fn take_wanted(&self) -> HashSet<String> {
        std::mem::take(&mut lock(&self.known).wanted)
    }

    pub fn learn(&self, unit: String, told: UnitInfo) {
        let mut known = lock(&self.known);
        // It may have been noted again while it was asked for.
        known.wanted.remove(&unit);
        known.units.insert(unit, Arc::new(told), 1);
        drop(known);
        self.news.send_modify(|answers| *answers += 1);
    }
}

impl DirectoryState {
    /// The one that was found before, or else the last one that systemd told of.
    fn run(&mut self, member: &Member, told: Option<&UnitInfo>) -> Option<Arc<str>> {
        if let Some(id) = self.runs.get(member) {
            return Some(id);
        }
        let process = member.process?;
        let last = told?.run.as_ref().filter(|run| run.has(process.created))?;
        self.runs.insert(member.clone(), Arc::clone(&last.id), 1);
        Some(Arc::clone(&last.id))
    }
}
