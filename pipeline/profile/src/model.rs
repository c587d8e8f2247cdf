//! Resources, scopes, profiles and the columns of samples.

use std::sync::Arc;

use bytes::Bytes;

use crate::value::Attributes;
use crate::{AttributeIdx, Dictionary, LinkIdx, Lists, StackIdx, StringIdx};

/// A decoded batch. Its parts are shared: a clone copies no table and no sample.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Model {
    pub dictionary: Arc<Dictionary>,
    pub resources: Vec<ResourceProfiles>,
}

/// What one process, container or host was seen doing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ResourceProfiles {
    /// `None` where the message carried no resource at all.
    pub resource: Option<Arc<Resource>>,
    pub scopes: Vec<ScopeProfiles>,
    pub schema_url: Arc<str>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Resource {
    pub attributes: Attributes,
    pub dropped_attributes_count: u32,
    pub entity_refs: Vec<EntityRef>,
}

/// An entity that the resource describes: which of its attributes identify it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct EntityRef {
    pub schema_url: Arc<str>,
    pub kind: Arc<str>,
    pub id_keys: Vec<Arc<str>>,
    pub description_keys: Vec<Arc<str>>,
}

/// What one instrumentation scope measured.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ScopeProfiles {
    /// `None` where the message carried no scope at all.
    pub scope: Option<Arc<Scope>>,
    pub profiles: Vec<Arc<Profile>>,
    pub schema_url: Arc<str>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Scope {
    pub name: Arc<str>,
    pub version: Arc<str>,
    pub attributes: Attributes,
    pub dropped_attributes_count: u32,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct ValueType {
    pub kind: StringIdx,
    pub unit: StringIdx,
}

/// Samples of one type over one period.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Profile {
    pub sample_type: Option<ValueType>,
    pub samples: Samples,
    pub time_unix_nano: u64,
    pub duration_nano: u64,
    pub period_type: Option<ValueType>,
    pub period: i64,
    /// 16 bytes, or none.
    pub profile_id: Option<[u8; 16]>,
    pub dropped_attributes_count: u32,
    /// What this profile was made from; valid only while its content is unchanged.
    pub original_payload: Option<OriginalPayload>,
    pub attributes: Vec<AttributeIdx>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OriginalPayload {
    pub format: Arc<str>,
    pub payload: Bytes,
}

/// The samples of a profile, a column for each part.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Samples {
    stacks: Vec<StackIdx>,
    links: Vec<LinkIdx>,
    attributes: Lists<AttributeIdx>,
    values: Lists<i64>,
    timestamps: Lists<u64>,
}

/// One sample, borrowed from its columns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct SampleRef<'a> {
    pub stack: StackIdx,
    pub link: LinkIdx,
    pub attributes: &'a [AttributeIdx],
    pub values: &'a [i64],
    pub timestamps: &'a [u64],
}

// === impl Model ===

impl Model {
    pub fn profiles(&self) -> impl Iterator<Item = &Profile> {
        self.resources
            .iter()
            .flat_map(|resource| &resource.scopes)
            .flat_map(|scope| &scope.profiles)
            .map(Arc::as_ref)
    }

    pub fn sample_count(&self) -> usize {
        self.profiles().map(|profile| profile.samples.len()).sum()
    }
}

// === impl Samples ===

impl Samples {
    pub fn len(&self) -> usize {
        self.stacks.len()
    }

    pub fn is_empty(&self) -> bool {
        self.stacks.is_empty()
    }

    pub fn push(&mut self, sample: SampleRef<'_>) {
        self.stacks.push(sample.stack);
        self.links.push(sample.link);
        self.attributes.push(sample.attributes);
        self.values.push(sample.values);
        self.timestamps.push(sample.timestamps);
    }

    pub fn get(&self, row: usize) -> Option<SampleRef<'_>> {
        Some(SampleRef {
            stack: *self.stacks.get(row)?,
            link: *self.links.get(row)?,
            attributes: self.attributes.get(row),
            values: self.values.get(row),
            timestamps: self.timestamps.get(row),
        })
    }

    pub fn iter(&self) -> impl Iterator<Item = SampleRef<'_>> {
        (0..self.len()).filter_map(|row| self.get(row))
    }

    // What all samples have together.

    pub fn attribute_count(&self) -> usize {
        self.attributes.items().len()
    }

    pub fn value_count(&self) -> usize {
        self.values.items().len()
    }

    pub fn timestamp_count(&self) -> usize {
        self.timestamps.items().len()
    }
}
