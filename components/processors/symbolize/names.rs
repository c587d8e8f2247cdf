//! A bounded cache of resolved symbols.

use std::sync::Arc;

use parking_lot::Mutex;
use profcol_component::{ExecutableAddress, IntCounter, SymbolFrame};

use super::telemetry::Reason;
use profcol_metadata::BoundedCache;

/// The frames at an address, innermost first.
pub(super) type SymbolResult = Result<Arc<[SymbolFrame]>, Reason>;

/// Shared by all batches and filled by the workers.
pub(super) struct Names {
    known: Mutex<BoundedCache<ExecutableAddress, CachedSymbol>>,
    evicted: IntCounter,
}

#[derive(Clone)]
struct CachedSymbol {
    answer: SymbolResult,
    /// Whether it is not requested again.
    is_final: bool,
}

impl Names {
    pub fn new(bytes: usize, evicted: IntCounter) -> Self {
        Self {
            known: Mutex::new(BoundedCache::new(bytes)),
            evicted,
        }
    }

    /// The final answer for an address.
    pub fn get(&self, code: &ExecutableAddress) -> Option<SymbolResult> {
        final_answer(self.known.lock().get(code))
    }

    /// The latest answer for an address, which may not be final.
    pub fn latest(&self, code: &ExecutableAddress) -> Option<SymbolResult> {
        Some(self.known.lock().get(code)?.answer)
    }

    /// Reports the final answer for each address, with the lock taken once.
    pub fn each<T>(
        &self,
        addresses: impl Iterator<Item = (T, ExecutableAddress)>,
        mut report: impl FnMut(T, Option<SymbolResult>),
    ) {
        let mut known = self.known.lock();
        for (whose, code) in addresses {
            report(whose, final_answer(known.get(&code)));
        }
    }

    pub fn insert(&self, code: ExecutableAddress, answer: SymbolResult, is_final: bool) {
        let frames = answer.as_ref().map_or(&[][..], |frames| frames);
        let text = |it: &SymbolFrame| it.name.len() + it.system_name.len() + it.file.len();
        let texts: usize = frames.iter().map(text).sum();
        // Strings are shared, so this overestimates.
        let weight = size_of::<(ExecutableAddress, CachedSymbol)>() + size_of_val(frames) + texts;
        let known = CachedSymbol { answer, is_final };
        let forgotten = self.known.lock().insert(code, known, weight);
        self.evicted.inc_by(forgotten as u64);
    }
}

fn final_answer(known: Option<CachedSymbol>) -> Option<SymbolResult> {
    known.filter(|known| known.is_final).map(|it| it.answer)
}
