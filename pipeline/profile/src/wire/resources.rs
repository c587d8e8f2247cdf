//! Reads and writes resources without decoding samples or tables: new resources are encoded in front of unchanged
//! slices.

use std::borrow::Cow;

use bytes::Bytes;

use super::decode;
use super::encode::write_resource;
use super::fields::fields;
use super::tables::{Request, Tables, collect_strings};
use super::tags::{request, resource, resource_profiles};
use crate::proto::{Reader, WireError, Writer, varint_len};
use crate::{Resource, SharedResource, StringTable};

/// Shorter slices are copied instead of being sent as separate pieces.
const MIN_SHARED_BYTES: usize = 4096;

/// Upper bound for the tags and lengths around a resource.
const MAX_HEADER_BYTES: usize = 32;

/// All resources in order.
pub(crate) fn resources(wire: &Bytes) -> Result<Vec<SharedResource>, WireError> {
    let request = Request::read(wire)?;
    let mut strings = None;
    let mut referenced = Vec::new();
    let mut resources = Vec::with_capacity(request.resources.len());
    for row in request.resources.iter() {
        let Some(message) = fields(row, resource_profiles::RESOURCE).next() else {
            resources.push(SharedResource::new(Resource::default()));
            continue;
        };
        let message = message?;
        referenced.clear();
        collect_strings(message, resource::ATTRIBUTES, &mut referenced)?;
        if !referenced.iter().any(|index| index.is_set()) {
            resources.push(SharedResource::of_part(wire.slice_ref(message)));
            continue;
        }
        let strings = match &mut strings {
            Some(strings) => strings,
            none => none.insert(decode::string_table(
                &Tables::of_valid(&request.dictionary)?,
                decode::RowQuality::Valid,
            )?),
        };
        resources.push(SharedResource::new(decode::resource(message, strings)?));
    }
    Ok(resources)
}

/// Decodes a resource without table references.
pub(crate) fn decode_resource(message: &[u8]) -> Result<Resource, WireError> {
    decode::resource(message, &StringTable::default())
}

/// Encodes a resource for [`decode_resource`].
pub(crate) fn encode_resource(resource: &Resource) -> Bytes {
    let mut out = Writer::default();
    write_resource(&mut out, resource);
    out.into_vec().into()
}

/// The same bytes with resources replaced; `None` keeps one. Large slices are not copied.
///
/// String references of a changed resource are written inline; their string table rows remain. Cannot fail for
/// validated bytes.
pub(crate) fn with_resources<'a>(
    from: &Bytes,
    resources: impl Iterator<Item = Option<&'a Bytes>>,
) -> Result<Vec<Bytes>, WireError> {
    let request = Request::read(from)?;
    let resources: Vec<_> = resources.collect();
    let copied = request
        .resources
        .iter()
        .map(|row| row.len().min(MIN_SHARED_BYTES) + MAX_HEADER_BYTES);
    let new = resources.iter().flatten().map(|new| new.len());
    let mut out = Pieces {
        own: Writer::with_capacity(copied.chain(new).sum()),
        slices: Vec::new(),
    };
    for (row, resource) in request.resources.iter().zip(resources) {
        let Some(resource) = resource else {
            out.head(request::RESOURCE_PROFILES, row.len());
            out.stays(row);
            continue;
        };
        let others = other_fields(row)?;
        let length = others.iter().map(|field| field.len()).sum::<usize>();
        let head = 1 + varint_len(resource.len() as u64);
        out.head(request::RESOURCE_PROFILES, head + resource.len() + length);
        out.own.bytes_always(resource_profiles::RESOURCE, resource);
        others.iter().for_each(|field| out.stays(field));
    }
    match &request.dictionary {
        Cow::Borrowed([]) => {}
        Cow::Borrowed(dictionary) => {
            out.head(request::DICTIONARY, dictionary.len());
            out.stays(dictionary);
        }
        Cow::Owned(joined) => out.own.bytes(request::DICTIONARY, joined),
    }
    Ok(out.finish(from))
}

/// New bytes interleaved with unchanged slices.
struct Pieces<'a> {
    own: Writer,
    /// Slices by offset in the new bytes.
    slices: Vec<(usize, &'a [u8])>,
}

impl<'a> Pieces<'a> {
    /// Writes the tag and length of a field.
    fn head(&mut self, tag: u32, length: usize) {
        self.own.varint(u64::from(tag));
        self.own.varint(length as u64);
    }

    fn stays(&mut self, slice: &'a [u8]) {
        match slice.len() < MIN_SHARED_BYTES {
            true => self.own.raw(slice),
            false => self.slices.push((self.own.len(), slice)),
        }
    }

    fn finish(self, from: &Bytes) -> Vec<Bytes> {
        let own = Bytes::from(self.own.into_vec());
        let mut pieces = Vec::with_capacity(2 * self.slices.len() + 1);
        let mut at = 0;
        for (before, slice) in self.slices {
            pieces.push(own.slice(at..before));
            pieces.push(from.slice_ref(slice));
            at = before;
        }
        pieces.push(own.slice(at..));
        pieces.retain(|piece| !piece.is_empty());
        pieces
    }
}

/// The encoded fields of a `ResourceProfiles` except its resource.
fn other_fields(message: &[u8]) -> Result<Vec<&[u8]>, WireError> {
    let mut others = Vec::new();
    let mut reader = Reader::new(message);
    loop {
        let start = reader.rest();
        let Some(tag) = reader.tag()? else {
            return Ok(others);
        };
        reader.skip(tag, 0)?;
        if tag != resource_profiles::RESOURCE {
            others.push(&start[..start.len() - reader.rest().len()]);
        }
    }
}
