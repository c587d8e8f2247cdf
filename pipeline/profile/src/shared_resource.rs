//! A resource of which batch after batch speaks.
//!
//! Its bytes, what they say and by which hash it is found are made when somebody first asks, and
//! shared by all who hold it: whoever remembers what became of a resource gives out the same one
//! again and again.

use std::hash::{BuildHasher, Hash, Hasher};
use std::ops::Deref;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use foldhash::SharedSeed;
use foldhash::fast::SeedableRandomState;

use crate::{Resource, heap, wire};

/// A resource; cheap to clone, to compare and to look up. Two are equal that have the same bytes.
#[derive(Clone)]
pub struct SharedResource(Arc<Forms>);

/// Of `wire` and `content` at least one is set.
#[derive(Default)]
struct Forms {
    /// The message, without references into the tables of a batch: it says the same in any.
    wire: OnceLock<Bytes>,
    content: OnceLock<Arc<Resource>>,
    hash: OnceLock<u64>,
    /// The bytes are a part of a batch's, all of which stay as long as these.
    is_part: bool,
}

impl SharedResource {
    pub fn new(content: impl Into<Arc<Resource>>) -> Self {
        Self(Arc::new(Forms {
            content: OnceLock::from(content.into()),
            ..Forms::default()
        }))
    }

    /// Of a part of a batch's bytes that validation has read, and that refers to nothing.
    pub(crate) fn of_part(wire: Bytes) -> Self {
        Self(Arc::new(Forms {
            wire: OnceLock::from(wire),
            is_part: true,
            ..Forms::default()
        }))
    }

    /// The same one, for those who keep it longer than its batch.
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

    /// About how much memory it holds in all its forms.
    pub fn heap_size(&self) -> usize {
        size_of::<Forms>() + self.wire().len() + heap::attributes_size(&self.attributes)
    }

    pub(crate) fn wire(&self) -> &Bytes {
        self.0.wire.get_or_init(|| wire::encode_resource(self))
    }

    /// What it says.
    pub fn content(&self) -> Arc<Resource> {
        Arc::clone(self.read())
    }

    fn read(&self) -> &Arc<Resource> {
        self.0.content.get_or_init(|| {
            let read = wire::decode_resource(self.wire());
            Arc::new(read.expect("validation has read the same bytes"))
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
            // Random, since strangers choose the bytes, and the same in the whole process.
            let hasher = SeedableRandomState::with_seed(0, SharedSeed::global_random());
            hasher.hash_one(&**self.wire())
        }));
    }
}
