//! Reading and writing resources without reading samples or tables: new resources are
//! written in front of the slices that stay.

use bytes::Bytes;

use super::decode::{self, resource};
use super::encode::write_resource;
use super::tables::{Request, Tables, collect_strings, fields};
use super::tags::{request, resource as resource_tags, resource_profiles};
use crate::proto::{Reader, WireError, Writer};
use crate::{Resource, StringTable};

/// Each resource, in their order.
pub(crate) fn resources(wire: &[u8]) -> Result<Vec<Resource>, WireError> {
    let request = Request::read(wire)?;
    let strings = string_table(&request)?;
    let messages = request.resources.iter();
    messages
        .map(|message| resource_of(message, &strings))
        .collect()
}

/// The same bytes with these resources, `None` for those that stay.
///
/// Text that a changed resource had by index is written in full, its row of the string table
/// stays behind. Validated bytes cannot fail.
pub(crate) fn with_resources<'a>(
    wire: &[u8],
    resources: impl Iterator<Item = Option<&'a Resource>>,
) -> Result<Bytes, WireError> {
    let request = Request::read(wire)?;
    // Room for a few more attributes than there were.
    let mut out = Writer::with_capacity(wire.len() + wire.len() / 16 + 256);
    for (message, resource) in request.resources.iter().zip(resources) {
        let Some(resource) = resource else {
            out.bytes_always(request::RESOURCE_PROFILES, message);
            continue;
        };
        let others = other_fields(message)?;
        out.nested(request::RESOURCE_PROFILES, message.len(), |out| {
            write_resource(out, resource);
            others.iter().for_each(|field| out.raw(field));
        });
    }
    out.bytes(request::DICTIONARY, &request.dictionary);
    Ok(out.into_vec().into())
}

fn resource_of(message: &[u8], strings: &StringTable) -> Result<Resource, WireError> {
    match fields(message, resource_profiles::RESOURCE).next() {
        Some(message) => resource(message?, strings),
        None => Ok(Resource::default()),
    }
}

/// The fields of a `ResourceProfiles` as they stand, without its resource.
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

/// The string table, read only where a resource refers to it.
fn string_table(request: &Request<'_>) -> Result<StringTable, WireError> {
    let mut referenced = Vec::new();
    for message in &request.resources {
        for resource in fields(message, resource_profiles::RESOURCE) {
            collect_strings(resource?, resource_tags::ATTRIBUTES, &mut referenced)?;
        }
    }
    if !referenced.iter().any(|index| index.is_set()) {
        return Ok(StringTable::default());
    }
    decode::string_table(&Tables::of_valid(&request.dictionary)?)
}
