//! Profiles that share a pprof file.

use std::sync::Arc;

use super::attributes::{DEFAULT_SAMPLE_TYPE, SAMPLE_TYPE_ORDER};
use profcol_profile::{
    Model, Profile, ResourceProfiles, Scope, ScopeProfiles, StringTable, Value, ValueType,
};

/// Profiles of one scope with the same samples, each with its own sample type; or a single profile of any form.
#[derive(Clone, Debug)]
pub struct ProfileSet<'a> {
    pub(super) model: &'a Model,
    pub(super) resource: &'a ResourceProfiles,
    scope: &'a ScopeProfiles,
    /// In the order of the file's sample types.
    pub(super) profiles: Vec<&'a Profile>,
}

/// All profiles of `model`, grouped if they line up.
pub fn sets(model: &Model) -> impl Iterator<Item = ProfileSet<'_>> {
    model.resources.iter().flat_map(move |resource| {
        let sets = move |scope| sets_of_scope(model, resource, scope);
        resource.scopes.iter().flat_map(sets)
    })
}

fn sets_of_scope<'a>(
    model: &'a Model,
    resource: &'a ResourceProfiles,
    scope: &'a ScopeProfiles,
) -> Vec<ProfileSet<'a>> {
    let mut sets: Vec<ProfileSet<'a>> = Vec::new();
    for profile in in_original_order(scope) {
        match sets.last_mut() {
            Some(set) if set.lines_up_with(profile) => set.profiles.push(profile),
            _ => sets.push(ProfileSet {
                model,
                resource,
                scope,
                profiles: vec![profile],
            }),
        }
    }
    sets
}

impl<'a> ProfileSet<'a> {
    /// A single profile by index.
    pub fn single(model: &'a Model, resource: usize, scope: usize, profile: usize) -> Option<Self> {
        let resource = model.resources.get(resource)?;
        let scope = resource.scopes.get(scope)?;
        let profile = scope.profiles.get(profile)?;
        Some(Self {
            model,
            resource,
            scope,
            profiles: vec![profile],
        })
    }

    pub fn resource(&self) -> &'a ResourceProfiles {
        self.resource
    }

    pub fn scope(&self) -> &'a ScopeProfiles {
        self.scope
    }

    /// Kind and unit of each sample type.
    pub fn sample_types(&self) -> impl ExactSizeIterator<Item = (&'a str, &'a str)> {
        let strings = &self.model.dictionary.strings;
        self.profiles
            .iter()
            .map(|profile| texts(strings, profile.sample_type))
    }

    /// Kind and unit of the sampling period.
    pub fn period_type(&self) -> Option<(&'a str, &'a str)> {
        let strings = &self.model.dictionary.strings;
        let period_type = self.profiles[0].period_type?;
        Some(texts(strings, Some(period_type)))
    }

    pub fn period(&self) -> i64 {
        self.profiles[0].period
    }

    /// The number of samples as in OTLP: each sample type counts separately.
    pub fn sample_count(&self) -> usize {
        let profiles = self.profiles.iter();
        profiles.map(|profile| profile.samples.len()).sum()
    }

    /// The default sample type, if it is not the last.
    pub(super) fn default_sample_type(&self) -> &'a str {
        let scope = self.scope.scope.as_deref();
        let named = scope.and_then(|scope| attribute(scope, DEFAULT_SAMPLE_TYPE)?.as_str());
        let native = self.profiles.len() > 1 && original_order(self.scope).is_none();
        match named {
            Some(named) => named,
            None if native => self.sample_types().next().map_or("", |(kind, _)| kind),
            None => "",
        }
    }

    fn lines_up_with(&self, profile: &Profile) -> bool {
        let first = self.profiles[0];
        // Compares strings, because unset and empty are different rows, and rows need not be unique.
        let kind_and_unit = |profile: &Profile| {
            let strings = &self.model.dictionary.strings;
            texts(strings, profile.sample_type)
        };
        let has_type = |other: &&Profile| kind_and_unit(other) == kind_and_unit(profile);
        first.samples.len() == profile.samples.len()
            && first.samples.value_count() == first.samples.len()
            && profile.samples.value_count() == profile.samples.len()
            && first.samples.timestamp_count() == 0
            && profile.samples.timestamp_count() == 0
            && first.time_unix_nano == profile.time_unix_nano
            && first.duration_nano == profile.duration_nano
            && first.period_type == profile.period_type
            && first.period == profile.period
            && first.attributes == profile.attributes
            && !self.profiles.iter().any(has_type)
            && first
                .samples
                .iter()
                .zip(profile.samples.iter())
                .all(|(a, b)| {
                    a.stack == b.stack
                        && a.link == b.link
                        && a.attributes == b.attributes
                        && a.values.len() == 1
                        && b.values.len() == 1
                })
    }
}

pub(super) fn texts(strings: &StringTable, value_type: Option<ValueType>) -> (&str, &str) {
    let value_type = value_type.unwrap_or_default();
    (strings.get(value_type.kind), strings.get(value_type.unit))
}

fn attribute<'a>(scope: &'a Scope, key: &str) -> Option<&'a Value> {
    let mut attributes = scope.attributes.iter();
    Some(&attributes.find(|attribute| &*attribute.key == key)?.value)
}

fn in_original_order(scope: &ScopeProfiles) -> Vec<&Profile> {
    let profiles = scope.profiles.iter().map(Arc::as_ref);
    match original_order(scope) {
        Some(order) => {
            let mut placed: Vec<(usize, &Profile)> = order.into_iter().zip(profiles).collect();
            placed.sort_by_key(|(position, _)| *position);
            placed.into_iter().map(|(_, profile)| profile).collect()
        }
        None => profiles.collect(),
    }
}

/// The original index of each profile, if the scope was read from a pprof and is complete.
fn original_order(scope: &ScopeProfiles) -> Option<Vec<usize>> {
    let Value::Array(order) = attribute(scope.scope.as_deref()?, SAMPLE_TYPE_ORDER)? else {
        return None;
    };
    let order: Vec<usize> = order
        .iter()
        .map(|position| position.as_int()?.try_into().ok())
        .collect::<Option<_>>()?;
    let mut seen = vec![false; scope.profiles.len()];
    for &position in &order {
        let seen = seen.get_mut(position)?;
        if std::mem::replace(seen, true) {
            return None;
        }
    }
    (order.len() == seen.len()).then_some(order)
}
