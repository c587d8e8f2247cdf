//! Resources, scopes, profiles and the columns of samples.

use std::sync::Arc;

use bytes::Bytes;

use crate::value::Attributes;
use crate::{AttributeIdx, Dictionary, SampleRef, Samples, StringIdx};

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

    /// How often something was observed: a sample with timestamps stands for as many observations,
    /// one of a type that counts for its value, any other for one.
    pub fn observation_count(&self) -> u64 {
        let of_profile = |profile: &Profile| {
            let unit = profile.sample_type.map(|kind| kind.unit);
            let counts = unit.is_some_and(|unit| self.dictionary.strings.get(unit) == "count");
            let of_sample = |sample: SampleRef<'_>| match sample.timestamps.len() as u64 {
                _ if counts => u64::try_from(sample.observed()).unwrap_or(0),
                0 => 1,
                times => times,
            };
            profile.samples.iter().map(of_sample).sum::<u64>()
        };
        self.profiles().map(of_profile).sum()
    }
}

// === impl Profile ===

impl Profile {
    /// Keeps only some of the samples; returns how many went.
    pub fn retain_samples(&mut self, mut keep: impl FnMut(SampleRef<'_>) -> bool) -> usize {
        let mut kept = Samples::default();
        for sample in self.samples.iter().filter(|&sample| keep(sample)) {
            kept.push(sample);
        }
        let gone = self.samples.len() - kept.len();
        if gone > 0 {
            self.samples = kept;
            self.forget_whole();
        }
        gone
    }

    /// The same profile of other samples: it is no longer what it was made from.
    pub fn with_samples(&self, samples: Samples) -> Self {
        let mut other = Self {
            samples,
            ..self.head()
        };
        other.forget_whole();
        other
    }

    /// All but the samples.
    pub(crate) fn head(&self) -> Self {
        Self {
            samples: Samples::default(),
            original_payload: self.original_payload.clone(),
            attributes: self.attributes.clone(),
            ..*self
        }
    }

    /// Makes it an empty one that keeps its memory.
    pub(crate) fn clear(&mut self) {
        let mut samples = std::mem::take(&mut self.samples);
        samples.clear();
        let mut attributes = std::mem::take(&mut self.attributes);
        attributes.clear();
        *self = Self {
            samples,
            attributes,
            ..Self::default()
        };
    }

    /// Drops what is no longer true when some of the samples are gone.
    pub(crate) fn forget_whole(&mut self) {
        self.profile_id = None;
        self.original_payload = None;
    }
}
