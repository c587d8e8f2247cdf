//! Resources extracted from a batch's bytes, so that successive processors parse them once and changes are encoded
//! once.

use bytes::Bytes;

use crate::proto::WireError;
use crate::{SharedResource, wire};

#[derive(Clone, Default)]
pub(crate) struct Opened {
    /// The batch's bytes.
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

    /// Replaces resources, in order; `None` keeps one.
    pub fn replace(&mut self, new: impl IntoIterator<Item = Option<SharedResource>>) {
        for (row, new) in self.rows.iter_mut().zip(new) {
            if let Some(resource) = new {
                row.resource = resource;
                row.is_changed = true;
            }
        }
    }

    /// The whole batch with the current resources.
    pub fn to_wire(&self) -> Result<Vec<Bytes>, WireError> {
        let rows = self.rows.iter();
        let changed = rows.map(|row| row.is_changed.then(|| row.resource.wire()));
        wire::with_resources(&self.from, changed)
    }

    pub fn heap_size(&self) -> usize {
        // Unchanged resources share the batch's bytes.
        let from = if self.is_changed() {
            self.from.len()
        } else {
            0
        };
        let resources = self.resources().map(SharedResource::heap_size);
        from + resources.sum::<usize>()
    }
}
