//! Rules that look at samples, which may move samples of one profile to different resources.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use profcol_labels::{LabelRows, LabelSource, attribute_of};
use profcol_profile::{
    AttributeIdx, Attributes, Dictionary, KeyValue, Model, Profile, Resource, ResourceProfiles,
    Samples,
};

use super::decision_cache::CachedDecision;
use crate::shared::grouper::Grouper;
use crate::shared::lists::Rows;

/// The sample attributes that rules see.
struct SampleLabels<'a> {
    /// By any of their label names.
    names: &'a [String],
    /// Cached decisions by key.
    known: HashMap<Arc<str>, bool>,
}

/// Applies the rules to each sample of a batch.
pub(super) struct SampleRelabeler<'a, F> {
    labels: SampleLabels<'a>,
    verdict: F,
    rows: Rows<'a>,
    /// Which attributes of the dictionary are labels.
    is_label: Vec<bool>,
    grouper: Grouper,
    pub dropped_samples: usize,
    is_changed: bool,
}

/// The result for samples with the same attributes in one resource: the index of their new
/// resource, and their new attributes. `None` if they are dropped.
type SampleDecision = Option<(usize, Vec<AttributeIdx>)>;

// === impl SampleLabels ===

impl SampleLabels<'_> {
    fn are(&mut self, key: &str) -> bool {
        if let Some(&known) = self.known.get(key) {
            return known;
        }
        let attributes = vec![KeyValue::new(key, "x")];
        let rows = LabelRows::of_resource(&attributes);
        let mut names = rows
            .iter()
            .flat_map(|row| row.aliases().chain([row.name()]));
        let are = names.any(|name| self.names.iter().any(|label| label == name));
        self.known.insert(key.into(), are);
        are
    }
}

// === impl SampleRelabeler ===

impl<'a, F: FnMut(&Attributes) -> CachedDecision> SampleRelabeler<'a, F> {
    pub fn new(names: &'a [String], dictionary: &'a Dictionary, verdict: F) -> Self {
        let mut labels = SampleLabels {
            names,
            known: HashMap::new(),
        };
        let keys = dictionary.attributes.rows().iter().map(|row| row.key);
        let is_label = keys.map(|key| labels.are(dictionary.strings.get(key)));
        Self {
            is_label: is_label.collect(),
            labels,
            verdict,
            rows: Rows::of(dictionary),
            grouper: Grouper::default(),
            dropped_samples: 0,
            is_changed: false,
        }
    }

    pub fn take(&mut self, row: &ResourceProfiles) {
        let mut resources: Vec<Arc<Resource>> = Vec::new();
        let mut decisions: HashMap<Vec<AttributeIdx>, SampleDecision> = HashMap::new();
        for scope in &row.scopes {
            for profile in &scope.profiles {
                let parts = self.parts(profile, &mut decisions, |filter, list| {
                    filter.fate(row, list, &mut resources)
                });
                for (number, part) in parts {
                    let resource = resources.get(number).cloned();
                    self.grouper.add(row, resource, Some(scope), Some(part));
                }
            }
        }
    }

    /// Splits a profile by the resource of its samples.
    fn parts(
        &mut self,
        profile: &Arc<Profile>,
        decisions: &mut HashMap<Vec<AttributeIdx>, SampleDecision>,
        mut decide: impl FnMut(&mut Self, &[AttributeIdx]) -> SampleDecision,
    ) -> Vec<(usize, Arc<Profile>)> {
        let mut parts: BTreeMap<usize, Samples> = BTreeMap::new();
        for mut sample in profile.samples.iter() {
            let fate = match decisions.entry(sample.attributes.to_vec()) {
                Entry::Occupied(known) => known.into_mut(),
                Entry::Vacant(entry) => entry.insert(decide(self, sample.attributes)),
            };
            let Some((number, list)) = fate else {
                self.dropped_samples += 1;
                continue;
            };
            sample.attributes = list;
            parts.entry(*number).or_default().push(sample);
        }
        let parts = parts.into_iter().map(|(number, samples)| {
            if samples == profile.samples {
                return (number, Arc::clone(profile));
            }
            (number, Arc::new(profile.with_samples(samples)))
        });
        parts.collect()
    }

    /// The remaining profiles; `None` if nothing changed.
    pub fn finish(self) -> Option<Model> {
        let is_different = self.is_changed || self.dropped_samples > 0;
        is_different.then(|| Model {
            dictionary: Arc::new(self.rows.finish()),
            resources: self.grouper.resources,
        })
    }

    fn fate(
        &mut self,
        row: &ResourceProfiles,
        list: &[AttributeIdx],
        resources: &mut Vec<Arc<Resource>>,
    ) -> SampleDecision {
        let none = Vec::new();
        let of_resource = row.resource.as_ref().map_or(&none, |it| &it.attributes);
        let is_label = |index: &AttributeIdx| self.is_label.get(index.row()) == Some(&true);
        let (labels, others): (Vec<_>, Vec<_>) = list.iter().copied().partition(is_label);
        let of_sample = self.rows.attributes(&labels);
        let has = |attributes: &Attributes, key: &str| attributes.iter().any(|it| *it.key == *key);
        let (hidden, mut seen): (Attributes, Attributes) = of_resource
            .iter()
            .cloned()
            .partition(|it| has(&of_sample, &it.key));
        seen.extend(of_sample.iter().cloned());
        let verdict = (self.verdict)(&seen);
        if verdict.is_drop() {
            return None;
        }
        let Some(new) = verdict.into_new() else {
            let number = number_of(row.resource.clone().unwrap_or_default(), resources);
            return Some((number, list.to_vec()));
        };
        self.is_changed = true;
        let mut list = others;
        let mut resource = row.resource.as_deref().cloned().unwrap_or_default();
        resource.attributes = hidden;
        for mut attribute in new.attributes.iter().cloned() {
            let key = attribute_of(&attribute.key, LabelSource::Sample).unwrap_or(&attribute.key);
            let is_of_sample =
                has(&of_sample, key) || !has(of_resource, key) && self.labels.are(key);
            if is_of_sample {
                attribute.key = key.into();
                list.push(self.rows.row(&labels, attribute));
            } else {
                resource.attributes.push(attribute);
            }
        }
        Some((number_of(Arc::new(resource), resources), list))
    }
}

fn number_of(resource: Arc<Resource>, resources: &mut Vec<Arc<Resource>>) -> usize {
    let known = resources.iter().position(|known| *known == resource);
    known.unwrap_or_else(|| {
        resources.push(resource);
        resources.len() - 1
    })
}
