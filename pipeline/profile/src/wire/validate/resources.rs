//! Resources, scopes and their inline attributes.

use super::attributes::distinct_texts;
use super::{Walk, once, utf8};
use crate::proto::{Reader, WireError};
use crate::wire::fields::fields;
use crate::wire::invalid::{Invalid, Reason, WithPath};
use crate::wire::tags::{entity_ref, resource, resource_profiles, scope, scope_profiles};
use crate::wire::value::{AnyValue, MAX_DEPTH, Pair, any_value, items, key_value};

impl Walk<'_> {
    pub(super) fn resource_profiles(&mut self, message: &[u8]) -> Result<(), Invalid> {
        self.counts.resources += 1;
        let head = self.resource_profiles_head(message);
        let bad = self.note(head)?;
        self.skip.has_bad_heads |= bad.is_some();
        for (position, scope) in fields(message, resource_profiles::SCOPES).enumerate() {
            self.scope_profiles(scope?, bad)
                .item("scope_profiles", position)?;
        }
        Ok(())
    }

    fn resource_profiles_head(&self, message: &[u8]) -> Result<(), Invalid> {
        let mut resources = 0;
        let mut reader = Reader::new(message);
        while let Some(tag) = reader.tag()? {
            match tag {
                resource_profiles::RESOURCE => {
                    resources += 1;
                    self.resource(reader.message()?).field("resource")?;
                }
                resource_profiles::SCOPES => drop(reader.bytes()?),
                resource_profiles::SCHEMA_URL => utf8(reader.bytes()?).field("schema_url")?,
                unknown => reader.skip(unknown, resource_profiles::KNOWN)?,
            }
        }
        once(resources, resource_profiles::RESOURCE)
    }

    fn resource<'k>(&'k self, mut reader: Reader<'k>) -> Result<(), Invalid> {
        let mut keys = Vec::new();
        let mut entities = 0..;
        while let Some(tag) = reader.tag()? {
            match tag {
                resource::ATTRIBUTES => self.attribute(reader.bytes()?, &mut keys)?,
                resource::DROPPED_ATTRIBUTES => drop(reader.varint()?),
                resource::ENTITY_REFS => {
                    entity(reader.message()?).item("entity_refs", entities.next().unwrap_or(0))?
                }
                unknown => reader.skip(unknown, resource::KNOWN)?,
            }
        }
        distinct_texts(&keys)
    }

    fn scope_profiles(&mut self, message: &[u8], bad: Option<Reason>) -> Result<(), Invalid> {
        self.scopes += 1;
        let head = self.scope_profiles_head(message);
        let own = self.note(head)?;
        self.skip.has_bad_heads |= own.is_some();
        let bad = own.or(bad);
        for (position, profile) in fields(message, scope_profiles::PROFILES).enumerate() {
            self.profile(profile?, bad).item("profiles", position)?;
        }
        Ok(())
    }

    fn scope_profiles_head(&self, message: &[u8]) -> Result<(), Invalid> {
        let mut scopes = 0;
        let mut reader = Reader::new(message);
        while let Some(tag) = reader.tag()? {
            match tag {
                scope_profiles::SCOPE => {
                    scopes += 1;
                    self.scope(reader.message()?).field("scope")?;
                }
                scope_profiles::PROFILES => drop(reader.bytes()?),
                scope_profiles::SCHEMA_URL => utf8(reader.bytes()?).field("schema_url")?,
                unknown => reader.skip(unknown, scope_profiles::KNOWN)?,
            }
        }
        once(scopes, scope_profiles::SCOPE)
    }

    fn scope<'k>(&'k self, mut reader: Reader<'k>) -> Result<(), Invalid> {
        let mut keys = Vec::new();
        while let Some(tag) = reader.tag()? {
            match tag {
                scope::NAME => utf8(reader.bytes()?).field("name")?,
                scope::VERSION => utf8(reader.bytes()?).field("version")?,
                scope::ATTRIBUTES => self.attribute(reader.bytes()?, &mut keys)?,
                scope::DROPPED_ATTRIBUTES => drop(reader.varint()?),
                unknown => reader.skip(unknown, scope::KNOWN)?,
            }
        }
        distinct_texts(&keys)
    }

    /// Checks an attribute of a resource or scope; collects its key.
    #[inline(always)]
    fn attribute<'k>(&'k self, message: &'k [u8], keys: &mut Vec<&'k [u8]>) -> Result<(), Invalid> {
        let pair = self.key_value(message, 0);
        let pair = pair.item("attributes", keys.len())?;
        keys.push(if pair.key.is_empty() {
            self.texts.get(pair.key_index).unwrap_or_default()
        } else {
            pair.key
        });
        Ok(())
    }

    fn key_value<'k>(&self, message: &'k [u8], depth: usize) -> Result<Pair<'k>, Invalid> {
        let pair = key_value(message)?;
        utf8(pair.key).field("key")?;
        self.strings.check(pair.key_index).field("key_strindex")?;
        if let Some(value) = pair.value {
            self.value(value, depth).field("value")?;
        }
        Ok(pair)
    }

    pub(super) fn value(&self, message: &[u8], depth: usize) -> Result<(), Invalid> {
        if depth > MAX_DEPTH {
            return Err(WireError::TooDeep { limit: MAX_DEPTH }.into());
        }
        match any_value(message)? {
            AnyValue::String(text) => utf8(text).field("string_value"),
            AnyValue::StringIndex(index) => {
                self.strings.check(index).field("string_value_strindex")
            }
            AnyValue::Array(array) => {
                for (position, item) in items(array).enumerate() {
                    self.value(item?, depth + 1).item("array_value", position)?;
                }
                Ok(())
            }
            AnyValue::Map(map) => {
                for (position, item) in items(map).enumerate() {
                    self.key_value(item?, depth + 1)
                        .item("kvlist_value", position)?;
                }
                Ok(())
            }
            AnyValue::Empty
            | AnyValue::Bool(_)
            | AnyValue::Int(_)
            | AnyValue::Double(_)
            | AnyValue::Bytes(_) => Ok(()),
        }
    }
}

fn entity(mut reader: Reader<'_>) -> Result<(), Invalid> {
    while let Some(tag) = reader.tag()? {
        match tag {
            entity_ref::SCHEMA_URL => utf8(reader.bytes()?).field("schema_url")?,
            entity_ref::KIND => utf8(reader.bytes()?).field("type")?,
            entity_ref::ID_KEYS => utf8(reader.bytes()?).field("id_keys")?,
            entity_ref::DESCRIPTION_KEYS => utf8(reader.bytes()?).field("description_keys")?,
            unknown => reader.skip(unknown, entity_ref::KNOWN)?,
        }
    }
    Ok(())
}
