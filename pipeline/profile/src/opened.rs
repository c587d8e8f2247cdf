//! Resources taken out of a batch's bytes, so that the processors behind each other read them once, and what they change
//! is written once.

use std::sync::Arc;

use bytes::Bytes;

use crate::proto::WireError;
use crate::{Resource, heap, wire};

#[derive(Clone)]
pub(crate) struct Opened {
    /// Where all the rest is.
    from: Bytes,
    resources: Vec<Row>,
}

#[derive(Clone)]
struct Row {
    resource: Arc<Resource>,
    is_changed: bool,
}

impl Opened {
    pub fn read(from: Bytes) -> Result<Self, WireError> {
        let read = wire::resources(&from)?;
        let rows = read.into_iter().map(|resource| Row {
            resource: Arc::new(resource),
            is_changed: false,
        });
        Ok(Self {
            resources: rows.collect(),
            from,
        })
    }

    pub fn is_changed(&self) -> bool {
        self.resources.iter().any(|row| row.is_changed)
    }

    pub fn look(&self, look: impl FnMut(&Resource)) {
        let resources = self.resources.iter().map(|row| &*row.resource);
        resources.for_each(look);
    }

    /// Whether one was changed by this.
    pub fn edit(&mut self, mut edit: impl FnMut(&mut Resource) -> bool) -> bool {
        let mut any = false;
        for row in &mut self.resources {
            let is_changed = edit(Arc::make_mut(&mut row.resource));
            row.is_changed |= is_changed;
            any |= is_changed;
        }
        any
    }

    /// All of it, with the resources as they are now.
    pub fn to_wire(&self) -> Result<Bytes, WireError> {
        let resources = self.resources.iter();
        wire::with_resources(
            &self.from,
            resources.map(|row| row.is_changed.then_some(&*row.resource)),
        )
    }

    pub fn heap_size(&self) -> usize {
        let resources = self.resources.iter();
        let resources = resources.map(|row| heap::attributes_size(&row.resource.attributes));
        // As long as nothing is changed they are the batch's.
        let from = if self.is_changed() {
            self.from.len()
        } else {
            0
        };
        from + resources.sum::<usize>()
    }
}
