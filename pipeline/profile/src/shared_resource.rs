//! A resource shared by many batches.
//!
//! Its bytes, decoded content and hash are computed on first use and shared by all holders, so that caches of processed
//! resources can return the same one repeatedly.

use std::hash::{BuildHasher, Hash, Hasher};
use std::ops::Deref;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use foldhash::SharedSeed;
use foldhash::fast::SeedableRandomState;

use crate::read_failures::Decoded;
use crate::{Resource, heap, wire};

/// A resource; cheap to clone, compare and hash. Equal if the bytes are equal.
#[derive(Clone)]
pub struct SharedResource(Arc<Forms>);

/// Created with one form; the others are derived lazily.
#[derive(Default)]
struct Forms {
    /// The message, without references into the tables of a batch.
    wire: OnceLock<Bytes>,
    content: OnceLock<Arc<Resource>>,
    hash: OnceLock<u64>,
    /// The bytes are a slice of a batch's, which keeps the whole batch alive.
    is_part: bool,
}

impl SharedResource {
    pub fn new(content: impl Into<Arc<Resource>>) -> Self {
        Self(Arc::new(Forms {
            content: OnceLock::from(content.into()),
            ..Forms::default()
        }))
    }

    /// From a validated slice of a batch's bytes without table references.
    pub(crate) fn of_part(wire: Bytes) -> Self {
        Self(Arc::new(Forms {
            wire: OnceLock::from(wire),
            is_part: true,
            ..Forms::default()
        }))
    }

    /// A copy of the bytes, for holders that outlive the batch.
    pub fn unshared(&self) -> Self {
        if !self.0.is_part {
            return self.clone();
        }
        Self(Arc::new(Forms {
            wire: OnceLock::from(Bytes::copy_from_slice(self.wire())),
            hash: self.0.hash.clone(),
            ..Forms::default()
        }))
    }

    /// Estimated memory of all its forms.
    pub fn heap_size(&self) -> usize {
        size_of::<Forms>() + self.wire().len() + heap::attributes_size(&self.attributes)
    }

    pub(crate) fn wire(&self) -> &Bytes {
        self.0.wire.get_or_init(|| wire::encode_resource(self))
    }

    /// The decoded resource.
    pub fn content(&self) -> Arc<Resource> {
        Arc::clone(self.read())
    }

    fn read(&self) -> &Arc<Resource> {
        self.0.content.get_or_init(|| {
            let read = wire::decode_resource(self.wire());
            Arc::new(Decoded::of("resource", read).value)
        })
    }
}

impl Deref for SharedResource {
    type Target = Resource;

    fn deref(&self) -> &Resource {
        self.read()
    }
}

impl PartialEq for SharedResource {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0) || self.wire() == other.wire()
    }
}

impl Eq for SharedResource {}

impl Hash for SharedResource {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(*self.0.hash.get_or_init(|| {
            // Randomly seeded, as the bytes are untrusted, with one seed per process.
            let hasher = SeedableRandomState::with_seed(0, SharedSeed::global_random());
            hasher.hash_one(&**self.wire())
        }));
    }
}
