//! Applies the rules to one batch.

use std::sync::Arc;

use profcol_component::SampledProcess;
use profcol_profile::{Dictionary, Profile, ResourceProfiles, ScopeProfiles};

use crate::shared::rules::{Decision, Open, PartialMatch, Rules};
use crate::shared::sampled_processes::sampled_processes;

pub(super) struct SampleFilter<'a> {
    rules: &'a Rules,
    dictionary: &'a Dictionary,
    /// Created for the first profile whose samples have to be checked.
    met: Option<PartialMatch>,
    pub dropped: Dropped,
}

#[derive(Default)]
pub(super) struct Dropped {
    pub samples: usize,
    pub profiles: usize,
    pub resources: usize,
    /// Processes dropped by their resource.
    pub processes: Vec<SampledProcess>,
}

impl Dropped {
    pub fn is_nothing(&self) -> bool {
        self.samples == 0 && self.profiles == 0 && self.resources == 0
    }
}

impl<'a> SampleFilter<'a> {
    pub fn new(rules: &'a Rules, dictionary: &'a Dictionary) -> Self {
        Self {
            rules,
            dictionary,
            met: None,
            dropped: Dropped::default(),
        }
    }

    /// The remaining part of the resource.
    pub fn resource(&mut self, row: &ResourceProfiles) -> Option<ResourceProfiles> {
        let none = Vec::new();
        let attributes = row.resource.as_ref().map_or(&none, |it| &it.attributes);
        let open = self.rules.of_resource(attributes);
        match open.resource_verdict() {
            Decision::Keep => return Some(row.clone()),
            Decision::Drop => {
                self.drop_resource(row);
                if self.rules.drop_is_final(attributes) {
                    self.dropped.processes.extend(sampled_processes(row));
                }
                return None;
            }
            Decision::ByContent => {}
        }
        let scopes: Vec<ScopeProfiles> = row
            .scopes
            .iter()
            .filter_map(|scope| {
                let profiles = scope.profiles.iter();
                let profiles: Vec<_> = profiles.filter_map(|it| self.profile(it, &open)).collect();
                let is_left = !profiles.is_empty() || scope.profiles.is_empty();
                is_left.then(|| ScopeProfiles {
                    profiles,
                    ..scope.clone()
                })
            })
            .collect();
        if scopes.is_empty() && !row.scopes.is_empty() {
            self.dropped.resources += 1;
            return None;
        }
        Some(ResourceProfiles {
            scopes,
            ..row.clone()
        })
    }

    fn profile(&mut self, profile: &Arc<Profile>, open: &Open<'_>) -> Option<Arc<Profile>> {
        let open = open.of_profile(&profile.attributes, self.dictionary);
        match open.profile_verdict() {
            Decision::Keep => return Some(Arc::clone(profile)),
            Decision::Drop => {
                self.dropped.samples += profile.samples.len();
                self.dropped.profiles += 1;
                return None;
            }
            Decision::ByContent => {}
        }
        let (rules, dictionary) = (self.rules, self.dictionary);
        let met = self.met.get_or_insert_with(|| rules.met_in(dictionary));
        let mut remaining = Profile::clone(profile);
        let dropped = remaining.retain_samples(|sample| open.keeps(sample.attributes, met));
        if dropped == 0 {
            return Some(Arc::clone(profile));
        }
        self.dropped.samples += dropped;
        if remaining.samples.is_empty() {
            self.dropped.profiles += 1;
            return None;
        }
        Some(Arc::new(remaining))
    }

    fn drop_resource(&mut self, row: &ResourceProfiles) {
        self.dropped.resources += 1;
        for profile in row.scopes.iter().flat_map(|scope| &scope.profiles) {
            self.dropped.samples += profile.samples.len();
            self.dropped.profiles += 1;
        }
    }
}
