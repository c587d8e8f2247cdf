//! Reading and changing resources without reading samples or tables: new resources are
//! written in front of the slices that stay.

use bytes::Bytes;

use super::decode::{self, resource};
use super::encode::write_resource;
use super::tables::{Request, Tables, collect_strings, fields};
use super::tags::{request, resource as resource_tags, resource_profiles};
use crate::proto::{Reader, WireError, Writer};
use crate::{Resource, StringTable};

/// Lets `edit` change each resource; it says whether it did. `None` if none was changed.
///
/// Text that a changed resource had by index is written in full, its row of the string table
/// stays behind. Validated bytes cannot fail.
pub(crate) fn update_resources(
    wire: &[u8],
    mut edit: impl FnMut(&mut Resource) -> bool,
) -> Result<Option<Bytes>, WireError> {
    let request = Request::read(wire)?;
    let strings = string_table(&request)?;
    let mut changed = false;
    // Room for a few more attributes than there were.
    let mut out = Writer::with_capacity(wire.len() + wire.len() / 16 + 256);
    for message in &request.resources {
        let mut new = resource_of(message, &strings)?;
        if edit(&mut new) {
            changed = true;
            let others = other_fields(message)?;
            out.nested(request::RESOURCE_PROFILES, message.len(), |out| {
                write_resource(out, &new);
                others.iter().for_each(|field| out.raw(field));
            });
        } else {
            out.bytes_always(request::RESOURCE_PROFILES, message);
        }
    }
    out.bytes(request::DICTIONARY, &request.dictionary);
    Ok(changed.then(|| out.into_vec().into()))
}

/// Shows each resource, in their order.
pub(crate) fn look_at_resources(
    wire: &[u8],
    mut look: impl FnMut(&Resource),
) -> Result<(), WireError> {
    let request = Request::read(wire)?;
    let strings = string_table(&request)?;
    for message in &request.resources {
        look(&resource_of(message, &strings)?);
    }
    Ok(())
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
