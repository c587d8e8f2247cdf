//! Names that were found, within a bound.

use std::sync::{Arc, Mutex};

use profcol_component::{Code, IntCounter, SymbolFrame};

use super::telemetry::Reason;
use crate::shared::generations::Generations;
use crate::shared::locks::lock;

/// What was found at a place: the frames, the innermost first.
pub(super) type Answer = Result<Arc<[SymbolFrame]>, Reason>;

/// What all batches know, and what the workers add.
pub(super) struct Names {
    known: Mutex<Generations<Code, CachedSymbol>>,
    evicted: IntCounter,
}

#[derive(Clone)]
struct CachedSymbol {
    answer: Answer,
    /// It is not asked for again.
    is_final: bool,
}

impl Names {
    pub fn new(bytes: usize, evicted: IntCounter) -> Self {
        Self {
            known: Mutex::new(Generations::new(bytes)),
            evicted,
        }
    }

    /// The last word on a place.
    pub fn get(&self, code: &Code) -> Option<Answer> {
        final_answer(lock(&self.known).get(code))
    }

    /// What is known of a place, though it may not be the last word.
    pub fn latest(&self, code: &Code) -> Option<Answer> {
        Some(lock(&self.known).get(code)?.answer)
    }

    /// Tells the last word on each place, holding the others off once.
    pub fn each<T>(
        &self,
        places: impl Iterator<Item = (T, Code)>,
        mut tell: impl FnMut(T, Option<Answer>),
    ) {
        let mut known = lock(&self.known);
        for (whose, code) in places {
            tell(whose, final_answer(known.get(&code)));
        }
    }

    pub fn insert(&self, code: Code, answer: Answer, is_final: bool) {
        let frames = answer.as_ref().map_or(&[][..], |frames| frames);
        let text = |it: &SymbolFrame| it.name.len() + it.system_name.len() + it.file.len();
        let texts: usize = frames.iter().map(text).sum();
        // Strings are shared by many, so this is more than it takes.
        let weight = size_of::<(Code, CachedSymbol)>() + size_of_val(frames) + texts;
        let known = CachedSymbol { answer, is_final };
        let forgotten = lock(&self.known).insert(code, known, weight);
        self.evicted.inc_by(forgotten as u64);
    }
}

fn final_answer(known: Option<CachedSymbol>) -> Option<Answer> {
    known.filter(|known| known.is_final).map(|it| it.answer)
}
