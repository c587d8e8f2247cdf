//! Names that were found, within a bound.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use profcol_component::IntCounter;
use profcol_profile::NamedLine;
use tokio::sync::Notify;

use super::asked::Place;
use super::telemetry::Reason;
use crate::shared::generations::Generations;
use crate::shared::locks::lock;

/// A place in an executable, by its build id.
pub(super) type Key = (Arc<str>, Place);

/// What was found at a place: the frames, the innermost first.
pub(super) type Answer = Result<Arc<[Frame]>, Reason>;

#[derive(Debug, Default)]
pub(super) struct Frame {
    pub name: Arc<str>,
    /// As the linker sees it.
    pub system_name: Arc<str>,
    pub file: Arc<str>,
    pub start_line: u32,
    pub line: u32,
    pub column: u32,
}

impl Frame {
    pub fn line(&self) -> NamedLine<'_> {
        NamedLine {
            name: &self.name,
            system_name: &self.system_name,
            filename: &self.file,
            start_line: self.start_line.into(),
            line: self.line.into(),
            column: self.column.into(),
        }
    }
}

/// What all batches know, and what the workers add.
pub(super) struct Names {
    known: Mutex<Generations<Key, Answer>>,
    evicted: IntCounter,
}

impl Names {
    pub fn new(bytes: usize, evicted: IntCounter) -> Self {
        Self {
            known: Mutex::new(Generations::new(bytes)),
            evicted,
        }
    }

    pub fn get(&self, key: &Key) -> Option<Answer> {
        lock(&self.known).get(key)
    }

    /// Tells of each key what is known, holding the others off once.
    pub fn each<T>(
        &self,
        keys: impl Iterator<Item = (T, Key)>,
        mut tell: impl FnMut(T, Option<Answer>),
    ) {
        let mut known = lock(&self.known);
        for (whose, key) in keys {
            tell(whose, known.get(&key));
        }
    }

    pub fn insert(&self, key: Key, answer: Answer) {
        let frames = answer.as_ref().map_or(&[][..], |frames| frames);
        let text = |it: &Frame| it.name.len() + it.system_name.len() + it.file.len();
        let texts: usize = frames.iter().map(text).sum();
        // Strings are shared by many, so this is more than it takes.
        let weight = size_of::<(Key, Answer)>() + size_of_val(frames) + texts;
        let forgotten = lock(&self.known).insert(key, answer, weight);
        self.evicted.inc_by(forgotten as u64);
    }
}

/// What a batch waits for.
#[derive(Default)]
pub(super) struct Wait {
    state: Mutex<Waiting>,
    is_done: Notify,
}

#[derive(Default)]
struct Waiting {
    jobs: usize,
    answers: HashMap<Key, Answer>,
}

impl Wait {
    pub fn expect_one(&self) {
        lock(&self.state).jobs += 1;
    }

    pub fn answer(&self, key: Key, answer: Answer) {
        lock(&self.state).answers.insert(key, answer);
    }

    pub fn end_one(&self) {
        let mut state = lock(&self.state);
        state.jobs = state.jobs.saturating_sub(1);
        if state.jobs == 0 {
            self.is_done.notify_one();
        }
    }

    /// Until everything is answered.
    pub async fn end(&self) {
        while lock(&self.state).jobs > 0 {
            self.is_done.notified().await;
        }
    }

    /// What was answered until now.
    pub fn take(&self) -> HashMap<Key, Answer> {
        std::mem::take(&mut lock(&self.state).answers)
    }
}
