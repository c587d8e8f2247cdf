//! The handle that flows through pipelines.
//!
//! A batch is kept in the form in which it came: the wire bytes, perhaps also their compressed
//! form. It is decoded when somebody first asks for the [`Model`], and encoded when somebody first
//! asks for the bytes of changed content; what nothing changed leaves as it came. Where resources
//! alone are read or changed, all the rest stays [in the bytes](Opened) undecoded, and leaves as
//! pieces of them. A batch that waits to leave compressed is [kept](Profiles::keep_for) in those
//! bytes alone, and decompressed should somebody ask for more.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;

use crate::opened::Opened;
use crate::wire::{self, Counts, Invalid, Reason, Skip};
use crate::{Bound, Merger, Model, Pieces, Resource, SharedResource, heap, split};

/// A batch of profiles: immutable, shared, cheap to clone; whoever changes it gets a copy of what
/// the change touches.
#[derive(Clone)]
pub struct Profiles(Arc<Batch>);

/// Of `wire`, `pieces`, `model`, `compressed` and a changed `opened` at least one is set.
struct Batch {
    wire: OnceLock<Bytes>,
    /// What the wire bytes are made of, where they would have to be put together.
    pieces: OnceLock<Vec<Bytes>>,
    model: OnceLock<Model>,
    compressed: Option<Packed>,
    opened: OnceLock<Opened>,
    counts: OnceLock<Counts>,
}

/// The wire bytes as they came, in an encoding that this crate knows only by name.
#[derive(Clone, Debug)]
pub struct Compressed {
    pub encoding: &'static str,
    pub bytes: Bytes,
    pub decompress: Decompress,
}

/// Undoes the named encoding of bytes that have been decompressed once before, to the given size.
pub type Decompress = fn(&'static str, &[u8], usize) -> Option<Bytes>;

/// What came compressed, and how long it is when it is not.
#[derive(Clone)]
struct Packed {
    compressed: Compressed,
    plain_len: usize,
}

/// What to do with samples that break the rules.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Validation {
    /// Refuse the request.
    #[default]
    Reject,
    /// Drop and count them, and keep the others.
    Repair,
}

/// A request that was let in.
pub struct Received {
    pub profiles: Profiles,
    /// Samples that were dropped, by what was wrong with them; always empty for
    /// [`Validation::Reject`].
    pub repaired: BTreeMap<Reason, usize>,
}

// === impl Profiles ===

impl Profiles {
    /// Takes an `ExportProfilesServiceRequest` (or `ProfilesData`) after checking every index and
    /// every rule in it.
    pub fn from_wire(wire: Bytes, validation: Validation) -> Result<Received, Invalid> {
        let refused = match wire::validate(&wire) {
            Ok(counts) => {
                return Ok(Received {
                    profiles: Self::new(Some(wire), None, Some(counts)),
                    repaired: BTreeMap::new(),
                });
            }
            Err(invalid) => invalid,
        };
        if validation == Validation::Reject || refused.is_unreadable() {
            return Err(refused);
        }
        let verdict = wire::repair(&wire)?;
        let model = wire::decode(&wire, &verdict.skip)?;
        Ok(Received {
            profiles: Self::from_model(crate::gc(&model)),
            repaired: verdict.bad,
        })
    }

    pub fn from_model(model: Model) -> Self {
        Self::new(None, Some(model), None)
    }

    /// Keeps the body as it was received beside the wire bytes that were made from it, so that an
    /// exporter with the same compression need not compress again.
    pub fn with_compressed(self, compressed: Compressed) -> Self {
        let plain_len = self.encoded_len();
        Self(Arc::new(Batch {
            wire: self.0.wire.clone(),
            pieces: self.0.pieces.clone(),
            model: self.0.model.clone(),
            compressed: Some(Packed {
                compressed,
                plain_len,
            }),
            opened: OnceLock::new(),
            counts: self.0.counts.clone(),
        }))
    }

    /// The decoded content.
    pub fn model(&self) -> &Model {
        self.0.model.get_or_init(|| {
            let wire = self
                .received_bytes()
                .expect("a batch without a model has bytes");
            wire::decode(wire, &Skip::default()).expect("validation has read the same bytes")
        })
    }

    /// The content to change, copied first if somebody else holds this batch too.
    pub fn model_mut(&mut self) -> &mut Model {
        self.model();
        let model = match Arc::get_mut(&mut self.0) {
            Some(batch) => batch.model.take().unwrap_or_default(),
            None => self.model().clone(),
        };
        *self = Self::from_model(model);
        Arc::get_mut(&mut self.0)
            .and_then(|batch| batch.model.get_mut())
            .expect("a new batch has one owner and its model")
    }

    pub fn into_model(mut self) -> Model {
        std::mem::take(self.model_mut())
    }

    /// Each resource, in their order. Samples and tables are not decoded for it.
    pub fn resources(&self) -> Vec<SharedResource> {
        if let Some(opened) = self.opened() {
            return opened.resources().cloned().collect();
        }
        let rows = self.model().resources.iter();
        rows.map(|row| SharedResource::new(row.resource.clone().unwrap_or_default()))
            .collect()
    }

    /// Others in the place of the resources, in their order; `None` for one that stays. Samples and
    /// tables are neither decoded nor encoded for it. A batch none of whose resources is replaced
    /// stays as it is.
    pub fn replace_resources(&mut self, new: Vec<Option<SharedResource>>) {
        if new.iter().all(Option::is_none) {
            return;
        }
        let own = Arc::get_mut(&mut self.0).and_then(|batch| batch.opened.take());
        if let Some(mut opened) = own.or_else(|| self.opened().cloned()) {
            opened.replace(new);
            *self = Self::new(None, None, self.0.counts.get().copied());
            let _ = self.0.opened.set(opened);
            return;
        }
        for (row, new) in self.model_mut().resources.iter_mut().zip(new) {
            if let Some(resource) = new {
                row.resource = Some(resource.content());
            }
        }
    }

    /// Shows each resource, in their order.
    pub fn look_at_resources(&self, look: impl FnMut(&Resource)) {
        self.resources()
            .iter()
            .map(|resource| &**resource)
            .for_each(look);
    }

    /// Lets `edit` change each resource; it says whether it did.
    pub fn update_resources(&mut self, mut edit: impl FnMut(&mut Resource) -> bool) {
        let resources = self.resources();
        let edited = resources.iter().map(|resource| {
            let mut resource = Resource::clone(resource);
            edit(&mut resource).then(|| SharedResource::new(resource))
        });
        self.replace_resources(edited.collect());
    }

    /// Joins batches; one alone stays as it came.
    pub fn merge(batches: impl IntoIterator<Item = Self>) -> Self {
        let mut batches = batches.into_iter();
        let first = batches.next().unwrap_or_default();
        let Some(second) = batches.next() else {
            return first;
        };
        let mut merger = Merger::new();
        for batch in [first, second].into_iter().chain(batches) {
            match (batch.0.model.get(), batch.received_bytes()) {
                (None, Some(wire)) => merger
                    .add_wire(wire)
                    .expect("validation has read the same bytes"),
                _ => merger.add(batch.model()),
            }
        }
        Self::from_model(merger.finish())
    }

    /// Cuts a batch into pieces of at most `bound`; one within it stays as it came.
    pub fn split(&self, bound: Bound) -> Pieces<Self> {
        let fits = match bound {
            Bound::Samples(samples) => self.sample_count() <= samples,
            Bound::Bytes(bytes) => self.encoded_len() <= bytes,
        };
        if fits {
            return Pieces {
                pieces: vec![self.clone()],
                oversize: None,
            };
        }
        let Pieces { pieces, oversize } = split(self.model(), bound);
        Pieces {
            pieces: pieces.into_iter().map(Self::from_model).collect(),
            oversize: oversize.map(Self::from_model),
        }
    }

    /// The bytes that came, or those of the changed content, encoded once.
    pub fn to_wire(&self) -> Bytes {
        self.wire().clone()
    }

    /// The same bytes in the pieces in which they lie: for those who send them.
    pub fn to_pieces(&self) -> Vec<Bytes> {
        match self.pieces() {
            Some(pieces) => pieces.to_vec(),
            None => vec![self.to_wire()],
        }
    }

    /// How long [`to_wire`](Self::to_wire) is; encodes if there are no bytes yet.
    pub fn encoded_len(&self) -> usize {
        match (&self.0.compressed, self.pieces()) {
            (Some(packed), _) => packed.plain_len,
            (None, Some(pieces)) => pieces.iter().map(Bytes::len).sum(),
            (None, None) => self.wire().len(),
        }
    }

    /// Keeps only what an exporter sends that passes bodies in this encoding on as they came; `None`
    /// passes none on. For batches that may have to wait.
    pub fn keep_for(&mut self, encoding: Option<&str>) {
        let Some(packed) = &self.0.compressed else {
            return self.close();
        };
        if encoding == Some(packed.compressed.encoding) {
            *self = Self(Arc::new(Batch {
                wire: OnceLock::new(),
                pieces: OnceLock::new(),
                model: OnceLock::new(),
                compressed: Some(packed.clone()),
                opened: OnceLock::new(),
                counts: OnceLock::from(self.counts()),
            }));
            return;
        }
        self.wire();
        // Where others hold the batch too, they decide what becomes of it.
        if let Some(batch) = Arc::get_mut(&mut self.0) {
            batch.compressed = None;
            batch.opened = OnceLock::new();
        }
    }

    /// Lets go of what was read out of the bytes, for the bytes with what was changed.
    fn close(&mut self) {
        if self.0.opened.get().is_none() || self.0.model.get().is_some() {
            return;
        }
        let counts = self.0.counts.get().copied();
        *self = match self.pieces() {
            None => Self::new(Some(self.wire().clone()), None, counts),
            Some(pieces) => {
                let pieces = pieces.to_vec();
                let closed = Self::new(None, None, counts);
                let _ = closed.0.pieces.set(pieces);
                closed
            }
        };
    }

    /// The body as it was received, if it came compressed and nothing changed since.
    pub fn compressed(&self) -> Option<&Compressed> {
        self.0.compressed.as_ref().map(|packed| &packed.compressed)
    }

    pub fn counts(&self) -> Counts {
        *self.0.counts.get_or_init(|| {
            let model = self.model();
            Counts {
                resources: model.resources.len(),
                profiles: model.profiles().count(),
                samples: model.sample_count(),
                undecoded_size: 0,
            }
        })
    }

    pub fn sample_count(&self) -> usize {
        self.counts().samples
    }

    pub fn profile_count(&self) -> usize {
        self.counts().profiles
    }

    /// How often something was observed, see [`Model::observation_count`]. Decodes the batch.
    pub fn observation_count(&self) -> u64 {
        self.model().observation_count()
    }

    /// The body as it was received, compressed where it came so; of changed content its encoding.
    pub fn body(&self) -> Bytes {
        match &self.0.compressed {
            Some(packed) => packed.compressed.bytes.clone(),
            None => self.to_wire(),
        }
    }

    /// Whether there is no sample in it.
    pub fn is_empty(&self) -> bool {
        self.sample_count() == 0
    }

    /// About how much memory the batch holds.
    pub fn heap_size(&self) -> usize {
        let wire = self.0.wire.get().map_or(0, Bytes::len);
        let compressed = self
            .0
            .compressed
            .as_ref()
            .map_or(0, |packed| packed.compressed.bytes.len());
        let model = self.0.model.get().map_or(0, heap::model_size);
        let opened = self.0.opened.get().map_or(0, Opened::heap_size);
        let pieces = self.0.pieces.get().into_iter().flatten();
        let pieces = pieces.map(Bytes::len).sum::<usize>();
        size_of::<Batch>() + wire + pieces + compressed + model + opened
    }

    fn wire(&self) -> &Bytes {
        self.received_bytes()
            .unwrap_or_else(|| self.0.wire.get_or_init(|| wire::encode(self.model())))
    }

    /// The bytes, where there are some that need not be encoded from the model.
    fn received_bytes(&self) -> Option<&Bytes> {
        if let Some(packed) = &self.0.compressed {
            return Some(self.0.wire.get_or_init(|| packed.decompress()));
        }
        match self.pieces() {
            Some(pieces) => Some(self.0.wire.get_or_init(|| pieces.concat().into())),
            None => self.0.wire.get(),
        }
    }

    /// What the bytes are made of, where they have not been put together.
    fn pieces(&self) -> Option<&[Bytes]> {
        let opened = self.0.opened.get().filter(|opened| opened.is_changed());
        let pieces = match opened {
            Some(opened) => Some(self.0.pieces.get_or_init(|| {
                let pieces = opened.to_wire();
                pieces.expect("validation has read the same bytes")
            })),
            None => self.0.pieces.get(),
        };
        pieces.map(Vec::as_slice)
    }

    /// The resources out of the bytes, where there are bytes.
    fn opened(&self) -> Option<&Opened> {
        if let Some(opened) = self.0.opened.get() {
            return Some(opened);
        }
        let wire = self.received_bytes()?;
        Some(self.0.opened.get_or_init(|| {
            let opened = Opened::read(wire.clone());
            opened.expect("validation has read the same bytes")
        }))
    }

    fn new(wire: Option<Bytes>, model: Option<Model>, counts: Option<Counts>) -> Self {
        Self(Arc::new(Batch {
            wire: cell(wire),
            pieces: OnceLock::new(),
            model: cell(model),
            compressed: None,
            opened: OnceLock::new(),
            counts: cell(counts),
        }))
    }
}

impl Packed {
    fn decompress(&self) -> Bytes {
        let Compressed {
            encoding,
            bytes,
            decompress,
        } = &self.compressed;
        decompress(encoding, bytes, self.plain_len)
            .expect("the same bytes have been decompressed to that size before")
    }
}

impl Default for Profiles {
    fn default() -> Self {
        Self::from_model(Model::default())
    }
}

impl From<Model> for Profiles {
    fn from(model: Model) -> Self {
        Self::from_model(model)
    }
}

impl std::fmt::Debug for Profiles {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Profiles")
            .field("wire_len", &self.0.wire.get().map(Bytes::len))
            .field("decoded", &self.0.model.get().is_some())
            .field("counts", &self.0.counts.get())
            .finish()
    }
}

fn cell<T>(value: Option<T>) -> OnceLock<T> {
    value.map_or_else(OnceLock::new, OnceLock::from)
}
