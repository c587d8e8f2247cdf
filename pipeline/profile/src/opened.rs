//! Resources taken out of a batch's bytes, so that the processors behind each other find them once, and what they change
//! is written once.

use bytes::Bytes;

use crate::proto::WireError;
use crate::{SharedResource, wire};

#[derive(Clone)]
pub(crate) struct Opened {
    /// Where all the rest is.
    from: Bytes,
    rows: Vec<Row>,
}

#[derive(Clone)]
struct Row {
    resource: SharedResource,
    is_changed: bool,
}

impl Opened {
    pub fn read(from: Bytes) -> Result<Self, WireError> {
        let rows = wire::resources(&from)?.into_iter().map(|resource| Row {
            resource,
            is_changed: false,
        });
        Ok(Self {
            rows: rows.collect(),
            from,
        })
    }

    pub fn is_changed(&self) -> bool {
        self.rows.iter().any(|row| row.is_changed)
    }

    pub fn resources(&self) -> impl Iterator<Item = &SharedResource> {
        self.rows.iter().map(|row| &row.resource)
    }

    /// In their order, `None` for those that stay.
    pub fn replace(&mut self, new: impl IntoIterator<Item = Option<SharedResource>>) {
        for (row, new) in self.rows.iter_mut().zip(new) {
            if let Some(resource) = new {
                row.resource = resource;
                row.is_changed = true;
            }
        }
    }

    /// All of it, with the resources as they are now.
    pub fn to_wire(&self) -> Result<Vec<Bytes>, WireError> {
        let rows = self.rows.iter();
        let changed = rows.map(|row| row.is_changed.then(|| row.resource.wire()));
        wire::with_resources(&self.from, changed)
    }

    pub fn heap_size(&self) -> usize {
        // As long as nothing is changed they are the batch's.
        let from = if self.is_changed() {
            self.from.len()
        } else {
            0
        };
        let resources = self.resources().map(SharedResource::heap_size);
        from + resources.sum::<usize>()
    }
}
