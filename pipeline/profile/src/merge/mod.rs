//! Merges batches in linear time.
//!
//! Tables are merged with an [`Interner`]; equal resources and scopes are deduplicated. Samples are never combined or
//! reordered within a profile. Two profiles are joined only if that does not change their meaning:
//!
//! * neither has an id or an original payload, and type, period, attributes and dropped counts
//!   are equal;
//! * every sample has timestamps, so that none loses its time in a longer window, and either all samples of both have
//!   values or none has;
//! * their windows overlap or touch, so that the joined window covers no time that was not profiled.
//!
//! Aggregated values without timestamps stay in separate profiles: joining two heap snapshots would double the heap.

#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::sync::Arc;

use foldhash::fast::RandomState;

use crate::gc::without_unused;
use crate::select::Selection;
use crate::{
    AttributeIdx, Interner, Model, Profile, Resource, ResourceProfiles, Samples, Scope,
    ScopeProfiles, ValueType,
};

/// Merges all batches.
pub fn merge<'a>(batches: impl IntoIterator<Item = &'a Model>) -> Model {
    let mut merger = Merger::new();
    for batch in batches {
        merger.add(batch);
    }
    merger.finish()
}

/// Merges batches incrementally.
#[derive(Default)]
pub struct Merger {
    pub(crate) interner: Interner,
    pub(crate) selection: Selection,
    /// Whether there may be unreferenced rows.
    pub(crate) unused_rows: bool,
    resources: Vec<MergedResource>,
    /// Positions of resources and scopes by their bytes, if these are self-contained.
    by_bytes: Positions<Box<[u8]>>,
    samples: usize,
    by_resource: Positions<(Option<Arc<Resource>>, Arc<str>)>,
    by_scope: Positions<(usize, Option<Arc<Scope>>, Arc<str>)>,
    /// The profile that the next one with the same key may be joined to.
    by_key: Positions<ProfileKey>,
}

type Positions<Key> = HashMap<Key, usize, RandomState>;

struct MergedResource {
    resource: Option<Arc<Resource>>,
    schema_url: Arc<str>,
    scopes: Vec<MergedScope>,
}

struct MergedScope {
    scope: Option<Arc<Scope>>,
    schema_url: Arc<str>,
    profiles: Vec<Profile>,
}

/// Profiles with equal keys may be joined; indices refer to the merged dictionary.
#[derive(PartialEq, Eq, Hash)]
struct ProfileKey {
    resource: usize,
    scope: usize,
    sample_type: Option<ValueType>,
    period_type: Option<ValueType>,
    period: i64,
    dropped_attributes_count: u32,
    attributes: Vec<AttributeIdx>,
    with_values: bool,
}

impl Merger {
    pub fn new() -> Self {
        Self::default()
    }

    /// Samples added so far.
    pub fn sample_count(&self) -> usize {
        self.samples
    }

    pub fn add(&mut self, batch: &Model) {
        let mut selection = std::mem::take(&mut self.selection);
        selection.clear_for(&batch.dictionary);
        if self.resources.is_empty() {
            self.interner.reserve_for(&batch.dictionary);
        }
        for profile in batch.profiles() {
            selection.profile(&batch.dictionary, profile);
        }
        selection.copy(&batch.dictionary, &mut self.interner);
        for row in &batch.resources {
            let resource = self.resource(row.resource.clone(), row.schema_url.clone());
            for row in &row.scopes {
                let scope = self.scope(resource, row.scope.clone(), row.schema_url.clone());
                for profile in &row.profiles {
                    self.profile(resource, scope, profile, &selection);
                }
            }
        }
        self.selection = selection;
    }

    /// The position of a resource or scope seen before with the same bytes.
    pub(crate) fn known(&self, bytes: &[u8]) -> Option<usize> {
        self.by_bytes.get(bytes).copied()
    }

    pub(crate) fn remember(&mut self, bytes: &[u8], position: usize) {
        self.by_bytes.insert(bytes.into(), position);
    }

    /// Returns the merged model.
    pub fn finish(self) -> Model {
        let resources = self.resources.into_iter().map(|row| ResourceProfiles {
            resource: row.resource,
            schema_url: row.schema_url,
            scopes: row.scopes.into_iter().map(MergedScope::finish).collect(),
        });
        let merged = Model {
            resources: resources.collect(),
            dictionary: Arc::new(self.interner.finish()),
        };
        if self.unused_rows {
            without_unused(merged)
        } else {
            merged
        }
    }

    pub(crate) fn resource(
        &mut self,
        resource: Option<Arc<Resource>>,
        schema_url: Arc<str>,
    ) -> usize {
        let new = MergedResource {
            resource: resource.clone(),
            schema_url: schema_url.clone(),
            scopes: Vec::new(),
        };
        let resources = &mut self.resources;
        *self
            .by_resource
            .entry((resource, schema_url))
            .or_insert_with(|| {
                resources.push(new);
                resources.len() - 1
            })
    }

    pub(crate) fn scope(
        &mut self,
        resource: usize,
        scope: Option<Arc<Scope>>,
        schema_url: Arc<str>,
    ) -> usize {
        let new = MergedScope {
            scope: scope.clone(),
            schema_url: schema_url.clone(),
            profiles: Vec::new(),
        };
        let scopes = &mut self.resources[resource].scopes;
        *self
            .by_scope
            .entry((resource, scope, schema_url))
            .or_insert_with(|| {
                scopes.push(new);
                scopes.len() - 1
            })
    }

    pub(crate) fn profile(
        &mut self,
        resource: usize,
        scope: usize,
        profile: &Profile,
        selection: &Selection,
    ) {
        self.samples += profile.samples.len();
        let rows = 0..profile.samples.len();
        let head = selection.translated_head(profile);
        let profiles = &mut self.resources[resource].scopes[scope].profiles;
        let last = shape(profile).map(|with_values| {
            let key = ProfileKey {
                resource,
                scope,
                sample_type: head.sample_type,
                period_type: head.period_type,
                period: head.period,
                dropped_attributes_count: head.dropped_attributes_count,
                attributes: head.attributes.clone(),
                with_values,
            };
            self.by_key.entry(key).or_insert(profiles.len())
        });
        let joined = last.as_deref().is_some_and(|&last| {
            let candidate = profiles.get_mut(last);
            candidate.is_some_and(|candidate| join_windows(candidate, profile))
        });
        let target = match last {
            Some(last) if joined => *last,
            last => {
                profiles.push(head);
                let new = profiles.len() - 1;
                if let Some(last) = last {
                    *last = new;
                }
                new
            }
        };
        let target = &mut profiles[target];
        target
            .samples
            .extend_translated(&profile.samples, rows, selection);
    }
}

impl MergedScope {
    fn finish(self) -> ScopeProfiles {
        ScopeProfiles {
            scope: self.scope,
            schema_url: self.schema_url,
            profiles: self.profiles.into_iter().map(Arc::new).collect(),
        }
    }
}

/// Whether samples have values besides timestamps; `None` if the profile must not be joined.
fn shape(profile: &Profile) -> Option<bool> {
    let Profile {
        samples,
        profile_id,
        original_payload,
        ..
    } = profile;
    if profile_id.is_some() || original_payload.is_some() || samples.is_empty() {
        return None;
    }
    let with_values = samples.value_count() > 0;
    let uniform = |samples: &Samples| {
        samples.iter().all(|sample| {
            let values = if with_values {
                sample.timestamps.len()
            } else {
                0
            };
            !sample.timestamps.is_empty() && sample.values.len() == values
        })
    };
    uniform(samples).then_some(with_values)
}

/// Extends the window of `joined` by that of `other`, unless there is a gap between them.
fn join_windows(joined: &mut Profile, other: &Profile) -> bool {
    let end = |profile: &Profile| profile.time_unix_nano.saturating_add(profile.duration_nano);
    let start = joined.time_unix_nano.min(other.time_unix_nano);
    let gap = joined.time_unix_nano.max(other.time_unix_nano) > end(joined).min(end(other));
    if gap {
        return false;
    }
    joined.duration_nano = end(joined).max(end(other)) - start;
    joined.time_unix_nano = start;
    true
}
