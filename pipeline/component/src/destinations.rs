//! Exporters that divide their batches between several destinations.

use std::fmt;
use std::sync::Arc;

use profcol_profile::{Attributes, Profiles};

use crate::Exporter;

/// The destinations of one exporter, and which gets what. The engine gives each a queue of its own.
pub struct Destinations {
    exporters: Vec<Arc<dyn Exporter>>,
    choose: Box<Choose>,
}

/// The position of the destination for a resource.
type Choose = dyn Fn(&Attributes) -> usize + Send + Sync;

impl Destinations {
    /// A destination is known by its instance: one that stays keeps its queue. `choose` returns its position for a
    /// resource; any other number means the last one.
    pub fn new(
        first: Arc<dyn Exporter>,
        others: impl IntoIterator<Item = Arc<dyn Exporter>>,
        choose: impl Fn(&Attributes) -> usize + Send + Sync + 'static,
    ) -> Self {
        Self {
            exporters: std::iter::once(first).chain(others).collect(),
            choose: Box::new(choose),
        }
    }

    /// At least one.
    pub fn exporters(&self) -> &[Arc<dyn Exporter>] {
        &self.exporters
    }

    /// For each resource of a batch the position of its destination.
    pub fn choose(&self, profiles: &Profiles) -> Vec<usize> {
        let last = self.exporters.len() - 1;
        let resources = profiles.resources();
        let resources = resources.iter();
        resources
            .map(|resource| (self.choose)(&resource.attributes).min(last))
            .collect()
    }
}

impl fmt::Debug for Destinations {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} destinations", self.exporters.len())
    }
}
