//! Symbols for batches that were passed on before they were resolved.

use std::sync::Arc;

use profcol_component::{ExecutableAddress, SymbolLookup, SymbolSource};
use profcol_profile::{Dictionary, LocationIdx};

use super::backlog::Backlog;
use super::names::Names;
use super::unresolved::code_location;

/// The resolved symbols, and the workers' backlog.
pub(super) struct DeferredLookup {
    pub names: Arc<Names>,
    pub backlog: Arc<Backlog>,
}

impl SymbolSource for DeferredLookup {
    fn code_location(
        &self,
        dictionary: &Dictionary,
        location: LocationIdx,
    ) -> Option<ExecutableAddress> {
        let code = code_location(dictionary, location)?;
        match self.lookup(&code) {
            SymbolLookup::Resolved(_) | SymbolLookup::Pending => Some(code),
            SymbolLookup::NotFound => None,
        }
    }

    fn lookup(&self, code: &ExecutableAddress) -> SymbolLookup {
        // In this order: an answer in between is then found in `names`.
        let is_pending = self.backlog.contains(code);
        match self.names.latest(code) {
            Some(Ok(frames)) => SymbolLookup::Resolved(frames),
            _ if is_pending => SymbolLookup::Pending,
            _ => SymbolLookup::NotFound,
        }
    }
}
