//! Names for batches that were passed on before they were named.

use std::sync::Arc;

use profcol_component::{Code, NameSource, Naming};
use profcol_profile::{Dictionary, LocationIdx};

use super::asked::code_at;
use super::backlog::Backlog;
use super::names::Names;

/// What is known, and what the workers still have to do.
pub(super) struct Late {
    pub names: Arc<Names>,
    pub backlog: Arc<Backlog>,
}

impl NameSource for Late {
    fn code_at(&self, dictionary: &Dictionary, location: LocationIdx) -> Option<Code> {
        let code = code_at(dictionary, location)?;
        match self.name(&code) {
            Naming::Named(_) | Naming::Pending => Some(code),
            Naming::Nameless => None,
        }
    }

    fn name(&self, code: &Code) -> Naming {
        // In this order: what is answered in between is known.
        let is_pending = self.backlog.contains(code);
        match self.names.latest(code) {
            Some(Ok(frames)) => Naming::Named(frames),
            _ if is_pending => Naming::Pending,
            _ => Naming::Nameless,
        }
    }
}
