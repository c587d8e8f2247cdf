//! The handle that flows through pipelines.
//!
//! A batch is kept as received: wire bytes, possibly with their compressed form. The [`Model`] is decoded on first use,
//! and changed content is encoded on first use; unchanged batches leave as received. If only resources are read or
//! changed, the rest stays undecoded [in the bytes](Opened) and is sent as slices of them. A batch waiting to be sent
//! compressed is [kept](Profiles::keep_for) only in compressed form, and decompressed on demand.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;

use crate::opened::Opened;
use crate::read_failures::or_default;
use crate::wire::{self, Counts, Invalid, Reason, Skip};
use crate::{Bound, Merger, Model, Pieces, Resource, SharedResource, heap, split};

/// A batch of profiles: shared, cheap to clone, copy-on-write.
#[derive(Clone)]
pub struct Profiles(Arc<Batch>);

struct Batch {
    content: Content,
    /// Values computed from the content so far.
    counts: OnceLock<Counts>,
    resources: OnceLock<Opened>,
    model: OnceLock<Model>,
}

/// The stored content. All else is derived from it on demand.
enum Content {
    /// Wire bytes, as received or encoded.
    Wire(Bytes),
    /// Wire bytes received compressed.
    Compressed {
        packed: Packed,
        wire: OnceLock<Bytes>,
    },
    /// Wire bytes with changed resources.
    Edited {
        opened: Opened,
        pieces: OnceLock<Vec<Bytes>>,
        wire: OnceLock<Bytes>,
    },
    /// Wire bytes in consecutive pieces.
    Pieces {
        pieces: Vec<Bytes>,
        wire: OnceLock<Bytes>,
    },
    /// The decoded model.
    Model { model: Model, wire: OnceLock<Bytes> },
}

/// Compressed wire bytes as received, in an encoding this crate knows only by name.
#[derive(Clone, Debug)]
pub struct Compressed {
    pub encoding: &'static str,
    pub bytes: Bytes,
    pub decompress: Decompress,
}

/// Decompresses bytes in the named encoding that were decompressed before, to the given size.
pub type Decompress = fn(&'static str, &[u8], usize) -> Option<Bytes>;

/// Compressed bytes and their decompressed length.
#[derive(Clone)]
struct Packed {
    compressed: Compressed,
    plain_len: usize,
}

/// How to handle invalid samples.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Validation {
    /// Refuse the request.
    #[default]
    Reject,
    /// Drop and count them; keep the others.
    Repair,
}

/// An accepted request.
pub struct Received {
    pub profiles: Profiles,
    /// Dropped samples by reason; always empty for [`Validation::Reject`].
    pub repaired: BTreeMap<Reason, usize>,
}

// === impl Profiles ===

impl Profiles {
    /// Validates an `ExportProfilesServiceRequest` (or `ProfilesData`) in full and accepts it.
    pub fn from_wire(wire: Bytes, validation: Validation) -> Result<Received, Invalid> {
        let refused = match wire::validate(&wire) {
            Ok(counts) => {
                return Ok(Received {
                    profiles: Self::new(Content::Wire(wire), Some(counts)),
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
        let wire = OnceLock::new();
        Self::new(Content::Model { model, wire }, None)
    }

    fn new(content: Content, counts: Option<Counts>) -> Self {
        Self(Arc::new(Batch {
            content,
            counts: counts.map_or_else(OnceLock::new, OnceLock::from),
            resources: OnceLock::new(),
            model: OnceLock::new(),
        }))
    }

    /// Keeps the compressed body along with the wire bytes, so that an exporter with the same compression need not
    /// compress again. Only for unchanged batches.
    pub fn with_compressed(self, compressed: Compressed) -> Self {
        let Content::Wire(wire) = &self.0.content else {
            return self;
        };
        let packed = Packed {
            compressed,
            plain_len: wire.len(),
        };
        let wire = OnceLock::from(wire.clone());
        Self::new(Content::Compressed { packed, wire }, self.known_counts())
    }

    /// The decoded content.
    pub fn model(&self) -> &Model {
        match &self.0.content {
            Content::Model { model, .. } => model,
            _ => self.0.model.get_or_init(|| {
                let model = wire::decode(self.wire(), &Skip::default());
                or_default("model", model)
            }),
        }
    }

    /// The decoded content, copied if the batch is shared.
    pub fn into_model(self) -> Model {
        self.model();
        match Arc::try_unwrap(self.0) {
            Ok(batch) => match batch.content {
                Content::Model { model, .. } => model,
                _ => batch.model.into_inner().unwrap_or_default(),
            },
            Err(shared) => Self(shared).model().clone(),
        }
    }

    /// Changes the decoded content, copied first if the batch is shared.
    pub fn edit<R>(&mut self, edit: impl FnOnce(&mut Model) -> R) -> R {
        let mut model = std::mem::take(self).into_model();
        let result = edit(&mut model);
        *self = Self::from_model(model);
        result
    }

    /// All resources in order, without decoding samples and tables.
    pub fn resources(&self) -> Vec<SharedResource> {
        if let Some(opened) = self.opened() {
            return opened.resources().cloned().collect();
        }
        let rows = self.model().resources.iter();
        rows.map(|row| SharedResource::new(row.resource.clone().unwrap_or_default()))
            .collect()
    }

    /// Replaces resources, in order; `None` keeps one. Samples and tables are neither decoded nor encoded. If nothing
    /// is replaced, the batch is unchanged.
    pub fn replace_resources(&mut self, new: Vec<Option<SharedResource>>) {
        if new.iter().all(Option::is_none) {
            return;
        }
        if let Some(opened) = self.opened() {
            let mut opened = opened.clone();
            opened.replace(new);
            let edited = Content::Edited {
                opened,
                pieces: OnceLock::new(),
                wire: OnceLock::new(),
            };
            *self = Self::new(edited, self.known_counts());
            return;
        }
        self.edit(|model| {
            for (row, new) in model.resources.iter_mut().zip(new) {
                if let Some(resource) = new {
                    row.resource = Some(resource.content());
                }
            }
        });
    }

    /// Calls `look` for each resource in order.
    pub fn for_each_resource(&self, look: impl FnMut(&Resource)) {
        self.resources()
            .iter()
            .map(|resource| &**resource)
            .for_each(look);
    }

    /// Lets `edit` change each resource; it returns whether it did.
    pub fn update_resources(&mut self, mut edit: impl FnMut(&mut Resource) -> bool) {
        let resources = self.resources();
        let edited = resources.iter().map(|resource| {
            let mut resource = Resource::clone(resource);
            edit(&mut resource).then(|| SharedResource::new(resource))
        });
        self.replace_resources(edited.collect());
    }

    /// Merges batches; a single one is returned unchanged.
    pub fn merge(batches: impl IntoIterator<Item = Self>) -> Self {
        let mut batches = batches.into_iter();
        let first = batches.next().unwrap_or_default();
        let Some(second) = batches.next() else {
            return first;
        };
        let mut merger = Merger::new();
        for batch in [first, second].into_iter().chain(batches) {
            match batch.decoded() {
                Some(model) => merger.add(model),
                None => or_default("tables to merge", merger.add_wire(batch.wire())),
            }
        }
        Self::from_model(merger.finish())
    }

    /// Splits a batch into pieces of at most `bound`; a batch within it is returned unchanged.
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

    /// The wire bytes as received, or of the changed content, encoded once.
    pub fn to_wire(&self) -> Bytes {
        self.wire().clone()
    }

    /// The same bytes as non-contiguous pieces, for sending.
    pub fn to_pieces(&self) -> Vec<Bytes> {
        match self.pieces() {
            Some(pieces) => pieces.to_vec(),
            None => vec![self.to_wire()],
        }
    }

    /// Length of [`to_wire`](Self::to_wire); encodes if needed.
    pub fn encoded_len(&self) -> usize {
        match (&self.0.content, self.pieces()) {
            (Content::Compressed { packed, .. }, _) => packed.plain_len,
            (_, Some(pieces)) => pieces.iter().map(Bytes::len).sum(),
            (_, None) => self.wire().len(),
        }
    }

    /// Keeps only the form sent by an exporter that forwards bodies in this encoding unchanged; `None` forwards none.
    /// For batches that may be queued.
    pub fn keep_for(&mut self, encoding: Option<&str>) {
        let content = match &self.0.content {
            Content::Compressed { packed, .. } if encoding == Some(packed.compressed.encoding) => {
                let wire = OnceLock::new();
                let packed = packed.clone();
                Content::Compressed { packed, wire }
            }
            Content::Compressed { .. } => {
                let wire = self.to_wire();
                // Leave a shared batch to its other holders.
                if let Some(batch) = Arc::get_mut(&mut self.0) {
                    batch.content = Content::Wire(wire);
                    batch.resources = OnceLock::new();
                }
                return;
            }
            // The decoded model is shared with other holders.
            _ if self.0.model.get().is_some() => return,
            Content::Wire(wire) if self.0.resources.get().is_some() => Content::Wire(wire.clone()),
            Content::Edited { .. } => Content::Pieces {
                pieces: self.to_pieces(),
                wire: OnceLock::new(),
            },
            Content::Wire(_) | Content::Pieces { .. } | Content::Model { .. } => return,
        };
        let counts = match &content {
            Content::Compressed { .. } => Some(self.counts()),
            _ => self.known_counts(),
        };
        *self = Self::new(content, counts);
    }

    /// The compressed body as received, if unchanged.
    pub fn compressed(&self) -> Option<&Compressed> {
        match &self.0.content {
            Content::Compressed { packed, .. } => Some(&packed.compressed),
            _ => None,
        }
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

    fn known_counts(&self) -> Option<Counts> {
        self.0.counts.get().copied()
    }

    pub fn sample_count(&self) -> usize {
        self.counts().samples
    }

    pub fn profile_count(&self) -> usize {
        self.counts().profiles
    }

    /// Number of observations, see [`Model::observation_count`]. Decodes the batch.
    pub fn observation_count(&self) -> u64 {
        self.model().observation_count()
    }

    /// The body as received, possibly compressed, or the encoded changed content.
    pub fn body(&self) -> Bytes {
        match self.compressed() {
            Some(compressed) => compressed.bytes.clone(),
            None => self.to_wire(),
        }
    }

    /// Whether it has no samples.
    pub fn is_empty(&self) -> bool {
        self.sample_count() == 0
    }

    /// Estimated memory of the batch.
    pub fn heap_size(&self) -> usize {
        let len = |wire: &OnceLock<Bytes>| wire.get().map_or(0, Bytes::len);
        let total = |pieces: &[Bytes]| pieces.iter().map(Bytes::len).sum::<usize>();
        let content = match &self.0.content {
            Content::Wire(wire) => wire.len(),
            Content::Compressed { packed, wire } => packed.compressed.bytes.len() + len(wire),
            Content::Edited {
                opened,
                pieces,
                wire,
            } => opened.heap_size() + pieces.get().map_or(0, |it| total(it)) + len(wire),
            Content::Pieces { pieces, wire } => total(pieces) + len(wire),
            Content::Model { model, wire } => heap::model_size(model) + len(wire),
        };
        let model = self.0.model.get().map_or(0, heap::model_size);
        let resources = self.0.resources.get().map_or(0, Opened::heap_size);
        size_of::<Batch>() + content + model + resources
    }

    /// The content, if already decoded.
    fn decoded(&self) -> Option<&Model> {
        match &self.0.content {
            Content::Model { model, .. } => Some(model),
            _ => self.0.model.get(),
        }
    }

    fn wire(&self) -> &Bytes {
        match &self.0.content {
            Content::Wire(wire) => wire,
            Content::Compressed { packed, wire } => wire.get_or_init(|| packed.decompress()),
            Content::Edited { wire, .. } | Content::Pieces { wire, .. } => {
                wire.get_or_init(|| self.pieces().unwrap_or_default().concat().into())
            }
            Content::Model { model, wire } => wire.get_or_init(|| wire::encode(model)),
        }
    }

    /// The pieces, if the wire bytes are in pieces.
    fn pieces(&self) -> Option<&[Bytes]> {
        match &self.0.content {
            Content::Edited { opened, pieces, .. } => {
                Some(pieces.get_or_init(|| or_default("resources", opened.to_wire())))
            }
            Content::Pieces { pieces, .. } => Some(pieces),
            _ => None,
        }
    }

    /// The extracted resources, if there are wire bytes.
    fn opened(&self) -> Option<&Opened> {
        match &self.0.content {
            Content::Edited { opened, .. } => Some(opened),
            Content::Model { .. } => None,
            _ => Some(self.0.resources.get_or_init(|| {
                let opened = Opened::read(self.to_wire());
                or_default("resources", opened)
            })),
        }
    }
}

impl Packed {
    fn decompress(&self) -> Bytes {
        let Compressed {
            encoding,
            bytes,
            decompress,
        } = &self.compressed;
        let plain = decompress(encoding, bytes, self.plain_len);
        or_default("compressed bytes", plain.ok_or("failed to decompress"))
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
        let content = match &self.0.content {
            Content::Wire(_) => "wire",
            Content::Compressed { .. } => "compressed",
            Content::Edited { .. } => "edited",
            Content::Pieces { .. } => "pieces",
            Content::Model { .. } => "model",
        };
        f.debug_struct("Profiles")
            .field("content", &content)
            .field("decoded", &self.decoded().is_some())
            .field("counts", &self.0.counts.get())
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::read_failures;

    /// Bytes that only a bug in validation would accept.
    fn unreadable(wire: &'static [u8]) -> Profiles {
        let counts = Counts {
            samples: 9,
            ..Counts::default()
        };
        Profiles::new(Content::Wire(Bytes::from_static(wire)), Some(counts))
    }

    #[test]
    fn unreadable_bytes_lose_only_their_content() {
        for wire in [&b"\x12\x05\xff"[..], b"\x0a\x03\x0a\x7f\x00", b"\xff"] {
            let before = read_failures();
            assert!(unreadable(wire).model().resources.is_empty(), "{wire:?}");
            assert!(read_failures() > before, "{wire:?}");

            let mut batch = unreadable(wire);
            batch.resources();
            batch.replace_resources(vec![Some(SharedResource::new(Resource::default()))]);
            batch.to_pieces();
            batch.keep_for(None);
            batch.to_wire();
            let pieces = batch.split(Bound::Samples(1)).pieces;
            Profiles::merge([unreadable(wire), Profiles::merge(pieces)]).into_model();
        }
        let packed = Compressed {
            encoding: "gzip",
            bytes: Bytes::from_static(b"damaged"),
            decompress: |_, _, _| None,
        };
        let mut batch = unreadable(b"").with_compressed(packed);
        batch.keep_for(Some("gzip"));
        let before = read_failures();
        assert!(batch.to_wire().is_empty());
        assert!(read_failures() > before);
    }
}
