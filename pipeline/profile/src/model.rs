//! Resources, scopes, profiles and the columns of samples.

use std::sync::Arc;

use bytes::Bytes;

use crate::value::Attributes;
use crate::{AttributeIdx, Dictionary, SampleRef, Samples, StringIdx};

/// A decoded batch. Clones share all tables and samples.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Model {
    pub dictionary: Arc<Dictionary>,
    pub resources: Vec<ResourceProfiles>,
}

/// Profiles of one process, container or host.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ResourceProfiles {
    /// `None` if the message had no resource.
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

/// An entity described by the resource, and which attributes identify it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct EntityRef {
    pub schema_url: Arc<str>,
    pub kind: Arc<str>,
    pub id_keys: Vec<Arc<str>>,
    pub description_keys: Vec<Arc<str>>,
}

/// Profiles of one instrumentation scope.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ScopeProfiles {
    /// `None` if the message had no scope.
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
    /// `None` if unset.
    pub profile_id: Option<[u8; 16]>,
    pub dropped_attributes_count: u32,
    /// The source of this profile; valid only while its content is unchanged.
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

    /// A single profile, and its resource.
    pub fn of_profile(
        dictionary: Dictionary,
        resource: Option<Resource>,
        profile: Profile,
    ) -> Self {
        Self {
            dictionary: Arc::new(dictionary),
            resources: vec![ResourceProfiles {
                resource: resource.map(Arc::new),
                scopes: vec![ScopeProfiles {
                    profiles: vec![Arc::new(profile)],
                    ..ScopeProfiles::default()
                }],
                ..ResourceProfiles::default()
            }],
        }
    }

    /// Other resources with the same tables.
    pub fn with_resources(&self, resources: Vec<ResourceProfiles>) -> Self {
        Self {
            dictionary: Arc::clone(&self.dictionary),
            resources,
        }
    }

    pub fn sample_count(&self) -> usize {
        self.profiles().map(|profile| profile.samples.len()).sum()
    }

    /// Number of observations: a sample with timestamps counts once per timestamp, one of a count type by its value,
    /// any other once.
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
    /// Keeps the matching samples; returns how many were removed.
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

    /// The same profile with other samples, without id and original payload.
    pub fn with_samples(&self, samples: Samples) -> Self {
        let mut other = Self {
            samples,
            ..self.head()
        };
        other.forget_whole();
        other
    }

    /// Everything except the samples.
    pub(crate) fn head(&self) -> Self {
        Self {
            samples: Samples::default(),
            original_payload: self.original_payload.clone(),
            attributes: self.attributes.clone(),
            ..*self
        }
    }

    /// Clears the profile but keeps its capacity.
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

    /// Drops fields that describe the whole, after samples were removed.
    pub(crate) fn forget_whole(&mut self) {
        self.profile_id = None;
        self.original_payload = None;
    }
}
