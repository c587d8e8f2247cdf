//! The handle that flows through pipelines.
//!
//! A batch is kept as received: wire bytes, possibly with their compressed form. The [`Model`] is decoded on first use,
//! and changed content is encoded on first use; unchanged batches leave as received. If only resources are read or
//! changed, the rest stays undecoded [in the bytes](Opened) and is sent as slices of them. A batch waiting to be sent
//! compressed is [kept](Profiles::keep_for) only in compressed form, and decompressed on demand.
//!
//! Validated bytes that fail to decode are a bug. The batch is empty then, but still counts its samples, as
//! [lost](Profiles::lost_samples), so that an exporter accounts for them.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use bytes::Bytes;

use crate::gc::Parts;
use crate::opened::Opened;
use crate::proto::WireError;
use crate::read_failures::Decoded;
use crate::wire::{self, Counts, Invalid, Reason, Skip};
use crate::{Bound, Merger, Model, Pieces, Resource, SharedResource, gc, heap, split};

/// A batch of profiles: shared, cheap to clone, copy-on-write.
#[derive(Clone)]
pub struct Profiles {
    content: Arc<Content>,
    /// Whether this handle or a clone of it has read something that failed to decode, if it is tracked.
    has_failed: Option<Arc<AtomicBool>>,
}

/// The stored content. All else is derived from it on demand.
enum Content {
    Encoded(Encoded),
    Model(Plain),
}

/// Wire bytes, with what was derived from them so far.
struct Encoded {
    form: Form,
    counts: Counts,
    model: OnceLock<Decoded<Model>>,
}

enum Form {
    /// As received or encoded.
    Wire { wire: Bytes, resources: Resources },
    /// Received compressed.
    Compressed {
        packed: Packed,
        wire: OnceLock<Decoded<Bytes>>,
        resources: Resources,
    },
    /// Profiles with changed resources.
    Edited {
        opened: Opened,
        pieces: OnceLock<Decoded<Vec<Bytes>>>,
        wire: OnceLock<Bytes>,
    },
    /// In consecutive pieces.
    Pieces {
        pieces: Vec<Bytes>,
        wire: OnceLock<Bytes>,
        resources: Resources,
    },
}

type Resources = OnceLock<Decoded<Opened>>;

/// The decoded model, with what was derived from it so far.
#[derive(Default)]
struct Plain {
    model: Model,
    /// Samples of the batch that are missing in the model because they failed to decode.
    lost_samples: usize,
    wire: OnceLock<Bytes>,
    counts: OnceLock<Counts>,
}

/// Compressed wire bytes as received, in an encoding this crate knows only by name.
#[derive(Clone, Debug)]
pub struct CompressedWire {
    pub encoding: &'static str,
    pub bytes: Bytes,
    pub decompress: Decompress,
}

/// Decompresses bytes in the named encoding that were decompressed before, to the given size.
pub type Decompress = fn(&'static str, &[u8], usize) -> Option<Bytes>;

/// Compressed bytes and their decompressed length.
#[derive(Clone)]
struct Packed {
    compressed: CompressedWire,
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
                    profiles: Self::encoded(Form::wire(wire), counts),
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
            profiles: Self::from_model(gc(&model)),
            repaired: verdict.bad,
        })
    }

    pub fn from_model(model: Model) -> Self {
        Self::with_lost(model, 0)
    }

    /// A batch of the model's samples and of others that failed to decode.
    fn with_lost(model: Model, lost_samples: usize) -> Self {
        Self::new(Content::Model(Plain {
            model,
            lost_samples,
            ..Plain::default()
        }))
    }

    fn encoded(form: Form, counts: Counts) -> Self {
        Self::new(Content::Encoded(Encoded {
            form,
            counts,
            model: OnceLock::new(),
        }))
    }

    fn new(content: Content) -> Self {
        Self {
            content: Arc::new(content),
            has_failed: None,
        }
    }

    /// Makes [`lost_samples`](Self::lost_samples) include samples that this handle and its clones fail to decode.
    pub fn tracked(self) -> Self {
        Self {
            has_failed: Some(Arc::default()),
            ..self
        }
    }

    /// How many of the [samples](Self::sample_count) failed to decode: before this batch was made from others, or as
    /// this [tracked](Self::tracked) handle was read.
    pub fn lost_samples(&self) -> usize {
        match &*self.content {
            Content::Model(decoded) => decoded.lost_samples,
            Content::Encoded(encoded) if self.has_failed() => encoded.counts.samples,
            Content::Encoded(_) => 0,
        }
    }

    fn has_failed(&self) -> bool {
        let has_failed = self.has_failed.as_ref();
        has_failed.is_some_and(|has_failed| has_failed.load(Ordering::Relaxed))
    }

    /// The value; if it failed to decode, the handle records that.
    fn track<'a, T>(&self, decoded: &'a Decoded<T>) -> &'a T {
        if let Some(has_failed) = &self.has_failed
            && decoded.has_failed
        {
            has_failed.store(true, Ordering::Relaxed);
        }
        &decoded.value
    }

    /// Keeps the compressed body along with the wire bytes, so that an exporter with the same compression need not
    /// compress again. Only for unchanged batches.
    pub fn with_compressed(self, compressed: CompressedWire) -> Self {
        let Content::Encoded(encoded) = &*self.content else {
            return self;
        };
        let Form::Wire { wire, .. } = &encoded.form else {
            return self;
        };
        let form = Form::Compressed {
            packed: Packed {
                compressed,
                plain_len: wire.len(),
            },
            wire: OnceLock::from(Decoded::from(wire.clone())),
            resources: OnceLock::new(),
        };
        Self::encoded(form, encoded.counts)
    }

    /// The decoded content.
    pub fn model(&self) -> &Model {
        match &*self.content {
            Content::Model(decoded) => &decoded.model,
            Content::Encoded(encoded) => {
                let decode = |wire: &Bytes| wire::decode(wire, &Skip::default());
                let decode = || self.decode("model", decode);
                self.track(encoded.model.get_or_init(decode))
            }
        }
    }

    /// The decoded content, copied if the batch is shared.
    pub fn into_model(self) -> Model {
        self.model();
        let has_failed = self.has_failed;
        match Arc::try_unwrap(self.content) {
            Ok(Content::Model(decoded)) => decoded.model,
            Ok(Content::Encoded(encoded)) => {
                let model = encoded.model.into_inner();
                model.map(|decoded| decoded.value).unwrap_or_default()
            }
            Err(content) => {
                let shared = Self {
                    content,
                    has_failed,
                };
                shared.model().clone()
            }
        }
    }

    /// Changes the decoded content, copied first if the batch is shared.
    pub fn edit<R>(&mut self, edit: impl FnOnce(&mut Model) -> R) -> R {
        let batch = std::mem::take(self).tracked();
        batch.model();
        let lost_samples = batch.lost_samples();
        let mut model = batch.into_model();
        let result = edit(&mut model);
        *self = Self::with_lost(model, lost_samples);
        result
    }

    /// All resources in order, without decoding samples and tables.
    pub fn resources(&self) -> Vec<SharedResource> {
        match &*self.content {
            Content::Encoded(encoded) => self.opened(encoded).resources().cloned().collect(),
            Content::Model(decoded) => {
                let rows = decoded.model.resources.iter();
                rows.map(|row| SharedResource::new(row.resource.clone().unwrap_or_default()))
                    .collect()
            }
        }
    }

    /// Replaces resources, in order; `None` keeps one. Samples and tables are neither decoded nor encoded. If nothing
    /// is replaced, the batch is unchanged.
    pub fn replace_resources(&mut self, new: Vec<Option<SharedResource>>) {
        if new.iter().all(Option::is_none) {
            return;
        }
        if let Content::Encoded(encoded) = &*self.content {
            let batch = self.clone().tracked();
            let mut opened = batch.opened(encoded).clone();
            opened.replace(new);
            let form = Form::Edited {
                opened,
                pieces: OnceLock::new(),
                wire: OnceLock::new(),
            };
            *self = batch.or_lost(form, encoded.counts);
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
        let mut samples = 0;
        for batch in [first, second].into_iter().chain(batches) {
            samples += batch.sample_count();
            if batch.is_decoded() {
                merger.add(batch.model());
            } else {
                let added = merger.add_wire(&batch.to_wire());
                Decoded::of("tables to merge", added);
            }
        }
        let merged = merger.finish();
        let lost_samples = samples.saturating_sub(merged.sample_count());
        Self::with_lost(merged, lost_samples)
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
        let batch = self.clone().tracked();
        let Pieces { pieces, oversize } = split(batch.model(), bound);
        let mut pieces: Vec<Self> = pieces.into_iter().map(Self::from_model).collect();
        match batch.lost_samples() {
            0 => {}
            lost_samples => pieces.push(Self::with_lost(Model::default(), lost_samples)),
        }
        Pieces {
            pieces,
            oversize: oversize.map(Self::from_model),
        }
    }

    /// The resources at these positions, in ascending order, with the table rows that they use; all of them are the
    /// unchanged batch. If the batch fails to decode, its samples belong to the first resource.
    pub fn part(&self, positions: &[usize]) -> Self {
        if self.is_all(positions) {
            return self.clone();
        }
        let batch = self.clone().tracked();
        let model = batch.model();
        let rows = positions.iter().filter_map(|at| model.resources.get(*at));
        let part = gc(&model.with_resources(rows.cloned().collect()));
        batch.with_losses_of(positions, part)
    }

    /// The [part](Self::part) for each of these groups, which takes less than one after the other: rows that this batch has twice stay.
    pub fn parts<'a>(&self, groups: impl IntoIterator<Item = &'a [usize]>) -> Vec<Self> {
        let batch = self.clone().tracked();
        let mut parts = None;
        let groups = groups.into_iter();
        groups
            .map(|positions| {
                if self.is_all(positions) {
                    return self.clone();
                }
                let parts = parts.get_or_insert_with(|| Parts::of(batch.model()));
                batch.with_losses_of(positions, parts.part(positions))
            })
            .collect()
    }

    /// Whether these are all of its resources.
    fn is_all(&self, positions: &[usize]) -> bool {
        let resources = 0..self.counts().resources;
        positions.len() == resources.len() && positions.iter().copied().eq(resources)
    }

    /// The model of its resources at these positions.
    fn with_losses_of(&self, positions: &[usize], model: Model) -> Self {
        let lost_samples = match positions.first() {
            Some(0) => self.lost_samples(),
            _ => 0,
        };
        Self::with_lost(model, lost_samples)
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
        match (self.packed(), self.pieces()) {
            (Some(packed), _) => packed.plain_len,
            (None, Some(pieces)) => pieces.iter().map(Bytes::len).sum(),
            (None, None) => self.wire().len(),
        }
    }

    /// Keeps only the form sent by an exporter that forwards bodies in this encoding unchanged; `None` forwards none.
    /// For batches that may be queued.
    pub fn keep_for(&mut self, encoding: Option<&str>) {
        let Content::Encoded(encoded) = &*self.content else {
            return;
        };
        let form = match &encoded.form {
            Form::Compressed { packed, .. } if encoding == Some(packed.compressed.encoding) => {
                Form::Compressed {
                    packed: packed.clone(),
                    wire: OnceLock::new(),
                    resources: OnceLock::new(),
                }
            }
            Form::Compressed { .. } => {
                let reader = self.clone().tracked();
                let form = Form::wire(reader.to_wire());
                if reader.has_failed() {
                    *self = reader.or_lost(form, encoded.counts);
                    return;
                }
                drop(reader);
                // Leave a shared batch to its other holders.
                if let Some(Content::Encoded(encoded)) = Arc::get_mut(&mut self.content) {
                    encoded.form = form;
                }
                return;
            }
            // The decoded model is shared with other holders.
            _ if encoded.model.get().is_some() => return,
            Form::Wire { wire, resources } if resources.get().is_some() => Form::wire(wire.clone()),
            Form::Edited { .. } => {
                let reader = self.clone().tracked();
                let form = Form::Pieces {
                    pieces: reader.to_pieces(),
                    wire: OnceLock::new(),
                    resources: OnceLock::new(),
                };
                *self = reader.or_lost(form, encoded.counts);
                return;
            }
            Form::Wire { .. } | Form::Pieces { .. } => return,
        };
        *self = Self::encoded(form, encoded.counts);
    }

    /// The bytes in another form; without samples if this tracked handle failed to read them.
    fn or_lost(&self, form: Form, counts: Counts) -> Self {
        match self.has_failed() {
            true => Self::with_lost(Model::default(), counts.samples),
            false => Self::encoded(form, counts),
        }
    }

    /// The compressed body as received, if unchanged.
    pub fn compressed(&self) -> Option<&CompressedWire> {
        self.packed().map(|packed| &packed.compressed)
    }

    fn packed(&self) -> Option<&Packed> {
        match &*self.content {
            Content::Encoded(Encoded {
                form: Form::Compressed { packed, .. },
                ..
            }) => Some(packed),
            _ => None,
        }
    }

    pub fn counts(&self) -> Counts {
        match &*self.content {
            Content::Encoded(encoded) => encoded.counts,
            Content::Model(decoded) => *decoded.counts.get_or_init(|| Counts {
                resources: decoded.model.resources.len(),
                profiles: decoded.model.profiles().count(),
                samples: decoded.model.sample_count() + decoded.lost_samples,
                undecoded_size: 0,
            }),
        }
    }

    /// Includes [lost](Self::lost_samples) ones.
    pub fn sample_count(&self) -> usize {
        self.counts().samples
    }

    pub fn profile_count(&self) -> usize {
        self.counts().profiles
    }

    /// Number of observations, see [`Model::observation_count`]; one for each sample that failed to decode. Decodes
    /// the batch.
    pub fn observation_count(&self) -> u64 {
        let batch = self.clone().tracked();
        batch.model().observation_count() + batch.lost_samples() as u64
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
        let content = match &*self.content {
            Content::Encoded(encoded) => encoded.heap_size(),
            Content::Model(Plain { model, wire, .. }) => {
                heap::model_size(model) + wire.get().map_or(0, Bytes::len)
            }
        };
        size_of::<Content>() + content
    }

    fn is_decoded(&self) -> bool {
        match &*self.content {
            Content::Encoded(encoded) => encoded.model.get().is_some(),
            Content::Model(_) => true,
        }
    }

    fn wire(&self) -> &Bytes {
        let encoded = match &*self.content {
            Content::Encoded(encoded) => encoded,
            Content::Model(Plain { model, wire, .. }) => {
                return wire.get_or_init(|| wire::encode(model));
            }
        };
        match &encoded.form {
            Form::Wire { wire, .. } => wire,
            Form::Compressed { packed, wire, .. } => {
                self.track(wire.get_or_init(|| packed.decompress()))
            }
            Form::Edited { wire, .. } | Form::Pieces { wire, .. } => {
                let pieces = self.pieces().unwrap_or_default();
                wire.get_or_init(|| pieces.concat().into())
            }
        }
    }

    /// The pieces, if the wire bytes are in pieces.
    fn pieces(&self) -> Option<&[Bytes]> {
        let Content::Encoded(encoded) = &*self.content else {
            return None;
        };
        match &encoded.form {
            Form::Edited { opened, pieces, .. } => {
                let encode = || Decoded::of("resources", opened.to_wire());
                let pieces: &Vec<Bytes> = self.track(pieces.get_or_init(encode));
                Some(pieces)
            }
            Form::Pieces { pieces, .. } => Some(pieces),
            Form::Wire { .. } | Form::Compressed { .. } => None,
        }
    }

    /// The extracted resources of wire bytes.
    fn opened<'a>(&self, encoded: &'a Encoded) -> &'a Opened {
        match &encoded.form {
            Form::Edited { opened, .. } => opened,
            Form::Wire { resources, .. }
            | Form::Compressed { resources, .. }
            | Form::Pieces { resources, .. } => {
                let read = |wire: &Bytes| Opened::read(wire.clone());
                self.track(resources.get_or_init(|| self.decode("resources", read)))
            }
        }
    }

    fn decode<T: Default>(
        &self,
        part: &'static str,
        decode: impl FnOnce(&Bytes) -> Result<T, WireError>,
    ) -> Decoded<T> {
        let reader = self.clone().tracked();
        let mut decoded = Decoded::of(part, decode(reader.wire()));
        decoded.has_failed |= reader.has_failed();
        decoded
    }
}

impl Encoded {
    fn heap_size(&self) -> usize {
        let len = |wire: &OnceLock<Bytes>| wire.get().map_or(0, Bytes::len);
        let total = |pieces: &[Bytes]| pieces.iter().map(Bytes::len).sum::<usize>();
        let opened = |resources: &Resources| {
            let decoded = resources.get();
            decoded.map_or(0, |decoded| decoded.value.heap_size())
        };
        let form = match &self.form {
            Form::Wire { wire, resources } => wire.len() + opened(resources),
            Form::Compressed {
                packed,
                wire,
                resources,
            } => {
                let wire = wire.get().map_or(0, |wire| wire.value.len());
                packed.compressed.bytes.len() + wire + opened(resources)
            }
            Form::Edited {
                opened,
                pieces,
                wire,
            } => {
                let pieces = pieces.get().map_or(0, |pieces| total(&pieces.value));
                opened.heap_size() + pieces + len(wire)
            }
            Form::Pieces {
                pieces,
                wire,
                resources,
            } => total(pieces) + len(wire) + opened(resources),
        };
        let model = self.model.get();
        form + model.map_or(0, |model| heap::model_size(&model.value))
    }
}

impl Form {
    fn wire(wire: Bytes) -> Self {
        Self::Wire {
            wire,
            resources: OnceLock::new(),
        }
    }
}

impl Packed {
    fn decompress(&self) -> Decoded<Bytes> {
        let CompressedWire {
            encoding,
            bytes,
            decompress,
        } = &self.compressed;
        let plain = decompress(encoding, bytes, self.plain_len);
        Decoded::of("compressed bytes", plain.ok_or("failed to decompress"))
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
        let content = match &*self.content {
            Content::Encoded(encoded) => match &encoded.form {
                Form::Wire { .. } => "wire",
                Form::Compressed { .. } => "compressed",
                Form::Edited { .. } => "edited",
                Form::Pieces { .. } => "pieces",
            },
            Content::Model(_) => "model",
        };
        let counts = match &*self.content {
            Content::Encoded(encoded) => Some(&encoded.counts),
            Content::Model(decoded) => decoded.counts.get(),
        };
        f.debug_struct("Profiles")
            .field("content", &content)
            .field("decoded", &self.is_decoded())
            .field("counts", &counts)
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::read_failures;

    const SAMPLES: usize = 9;

    /// Bytes that only a bug in validation would accept.
    fn unreadable(wire: &'static [u8]) -> Profiles {
        let counts = Counts {
            samples: SAMPLES,
            ..Counts::default()
        };
        Profiles::encoded(Form::wire(Bytes::from_static(wire)), counts)
    }

    const UNREADABLE: [&[u8]; 3] = [b"\x12\x05\xff", b"\x0a\x03\x0a\x7f\x00", b"\xff"];

    #[test]
    fn unreadable_bytes_lose_only_their_content() {
        for wire in UNREADABLE {
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
        let mut batch = unreadable(b"").with_compressed(damaged());
        batch.keep_for(Some("gzip"));
        let before = read_failures();
        assert!(batch.to_wire().is_empty());
        assert!(read_failures() > before);
    }

    fn damaged() -> CompressedWire {
        CompressedWire {
            encoding: "gzip",
            bytes: Bytes::from_static(b"damaged"),
            decompress: |_, _, _| None,
        }
    }

    #[test]
    fn every_lost_sample_is_counted() {
        let lost = |batch: &Profiles| (batch.sample_count(), batch.lost_samples());
        let all_lost = (SAMPLES, SAMPLES);
        for wire in UNREADABLE {
            let shared = unreadable(wire).tracked();
            let forwards = shared.clone().tracked();
            shared.clone().model();
            assert_eq!(lost(&shared), all_lost, "{wire:?}");
            assert_eq!(shared.observation_count(), SAMPLES as u64, "{wire:?}");
            // Another exporter sends the bytes as received.
            forwards.to_wire();
            assert_eq!(lost(&forwards), (SAMPLES, 0), "{wire:?}");
            assert_eq!(lost(&shared.tracked()), (SAMPLES, 0), "{wire:?}");

            let mut edited = unreadable(wire);
            edited.edit(|_| ());
            assert_eq!(lost(&edited), all_lost, "{wire:?}");
            let merged = Profiles::merge([edited, unreadable(wire), Profiles::default()]);
            assert_eq!(lost(&merged), (2 * SAMPLES, 2 * SAMPLES), "{wire:?}");
            let pieces = merged.split(Bound::Samples(1)).pieces;
            let pieces = pieces.iter().map(Profiles::lost_samples);
            assert_eq!(pieces.sum::<usize>(), 2 * SAMPLES, "{wire:?}");
            let parts = [vec![0], vec![1]].map(|at| lost(&unreadable(wire).part(&at)));
            assert_eq!(parts, [all_lost, (0, 0)], "{wire:?}");
        }
        let mut replaced = unreadable(b"\xff");
        replaced.replace_resources(vec![Some(SharedResource::new(Resource::default()))]);
        assert_eq!(lost(&replaced), all_lost);

        for encoding in [None, Some("gzip")] {
            let mut batch = unreadable(b"").with_compressed(damaged());
            // Forgets the decompressed bytes.
            batch.keep_for(Some("gzip"));
            batch.keep_for(encoding);
            let batch = batch.tracked();
            batch.model();
            batch.resources();
            assert_eq!(lost(&batch), all_lost, "{encoding:?}");
        }
    }
}
