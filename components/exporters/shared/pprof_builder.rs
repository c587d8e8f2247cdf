//! A pprof under construction, with symbols that may be deferred until it is finished.

use std::collections::HashMap;
use std::sync::Arc;

use profcol_component::{DeferredSymbol, DeferredSymbols, SymbolFrame, SymbolLookup};
use profcol_pprof::{
    AddProfilesError, Builder, LabelSelection, Options, ProfileSet, UnnamedLocation,
};
use profcol_profile::{Dictionary, LocationIdx};

pub(crate) struct PprofBuilder {
    builder: Builder,
    /// Locations whose symbols are resolved at the end.
    pending_symbols: HashMap<UnnamedLocation, DeferredSymbol>,
}

/// Memory of a deferred symbol, with its slot in the hash table.
const BYTES_PER_PENDING_SYMBOL: usize = size_of::<(UnnamedLocation, DeferredSymbol)>() * 2;

impl PprofBuilder {
    pub(crate) fn new(labels: LabelSelection) -> Self {
        Self {
            builder: Builder::new(Options {
                labels,
                period_values: true,
            }),
            pending_symbols: HashMap::new(),
        }
    }

    /// Adds profiles of the same sample types as before.
    pub(crate) fn add(
        &mut self,
        set: &ProfileSet<'_>,
        dictionary: &Dictionary,
        deferred_symbols: &DeferredSymbols,
    ) -> Result<(), AddProfilesError> {
        let pending = &mut self.pending_symbols;
        let mut note = |location: LocationIdx, id| {
            if let Some(symbol) = deferred_symbols.find(dictionary, location) {
                pending.insert(id, symbol);
            }
        };
        self.builder.add_with_unnamed(set, &mut note)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.builder.is_empty()
    }

    pub(crate) fn heap_size(&self) -> usize {
        self.builder.heap_size() + self.pending_symbols.len() * BYTES_PER_PENDING_SYMBOL
    }

    /// The uncompressed file, with the symbols available by now.
    pub(crate) fn finish(mut self) -> Vec<u8> {
        let mut named: HashMap<UnnamedLocation, Arc<[SymbolFrame]>> = HashMap::new();
        for (id, symbol) in self.pending_symbols {
            if let SymbolLookup::Resolved(frames) = symbol.lookup() {
                named.insert(id, frames);
            }
        }
        if !named.is_empty() {
            self.builder
                .set_lines(|id| Some(named.get(&id)?.iter().map(SymbolFrame::line)));
        }
        self.builder.finish()
    }
}
