//! Rewrites a request in the field order of the Collector's encoder, which fills its buffer from the end: the fields of each
//! message descend, the items of a list keep their order.

use crate::proto::{Reader, WireError, Writer, tag};
use crate::wire::tags::{
    any_value, attribute, dictionary, key_value, list, location, profile, request, resource,
    resource_profiles, scope, scope_profiles,
};

/// Messages with nested messages.
#[derive(Clone, Copy)]
enum Kind {
    Request,
    Dictionary,
    Location,
    Attribute,
    ResourceProfiles,
    Resource,
    ScopeProfiles,
    Scope,
    Profile,
    KeyValue,
    AnyValue,
    Array,
    Map,
    Leaf,
}

/// Rewrites an `ExportProfilesServiceRequest`.
pub fn in_descending_order(wire: &[u8]) -> Result<Vec<u8>, WireError> {
    message(Kind::Request, wire)
}

fn message(kind: Kind, wire: &[u8]) -> Result<Vec<u8>, WireError> {
    let mut fields: Vec<(u32, Vec<u8>)> = Vec::new();
    let mut reader = Reader::new(wire);
    while let Some(tag) = reader.tag()? {
        let mut field = Writer::default();
        match nested(kind, tag) {
            Some(kind) => field.bytes_always(tag, &message(kind, reader.bytes()?)?),
            None => {
                let before = reader.rest();
                reader.skip(tag, 0)?;
                field.varint(tag.into());
                field.raw(&before[..before.len() - reader.rest().len()]);
            }
        }
        fields.push((tag::field(tag), field.into_vec()));
    }
    // A stable sort keeps the order of items.
    fields.sort_by_key(|(number, _)| std::cmp::Reverse(*number));
    Ok(fields.into_iter().flat_map(|(_, field)| field).collect())
}

/// The message in a field, if it is one.
fn nested(kind: Kind, tag: u32) -> Option<Kind> {
    Some(match (kind, tag) {
        (Kind::Request, request::RESOURCE_PROFILES) => Kind::ResourceProfiles,
        (Kind::Request, request::DICTIONARY) => Kind::Dictionary,
        (Kind::ResourceProfiles, resource_profiles::RESOURCE) => Kind::Resource,
        (Kind::ResourceProfiles, resource_profiles::SCOPES) => Kind::ScopeProfiles,
        (Kind::Resource, resource::ATTRIBUTES) | (Kind::Scope, scope::ATTRIBUTES) => Kind::KeyValue,
        (Kind::Resource, resource::ENTITY_REFS) => Kind::Leaf,
        (Kind::ScopeProfiles, scope_profiles::SCOPE) => Kind::Scope,
        (Kind::ScopeProfiles, scope_profiles::PROFILES) => Kind::Profile,
        (Kind::Profile, profile::SAMPLE_TYPE | profile::SAMPLES | profile::PERIOD_TYPE) => {
            Kind::Leaf
        }
        (Kind::Dictionary, dictionary::LOCATIONS) => Kind::Location,
        (Kind::Dictionary, dictionary::ATTRIBUTES) => Kind::Attribute,
        (
            Kind::Dictionary,
            dictionary::MAPPINGS | dictionary::FUNCTIONS | dictionary::LINKS | dictionary::STACKS,
        )
        | (Kind::Location, location::LINES) => Kind::Leaf,
        (Kind::Attribute, attribute::VALUE) | (Kind::KeyValue, key_value::VALUE) => Kind::AnyValue,
        (Kind::AnyValue, any_value::ARRAY) => Kind::Array,
        (Kind::AnyValue, any_value::MAP) => Kind::Map,
        (Kind::Array, list::ITEMS) => Kind::AnyValue,
        (Kind::Map, list::ITEMS) => Kind::KeyValue,
        _ => return None,
    })
}
