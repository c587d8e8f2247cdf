//! Values over time, added up by labels.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use indexmap::IndexMap;
use profcol_flamegraph::Language;

use crate::chunk::Chunk;
use crate::language::Group;
use crate::selector::label_name;
use crate::{History, LANGUAGE, Query, SERVICE_NAME};

/// Intervals of equal length, in milliseconds of Unix time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Steps {
    /// The start of the first interval.
    pub start: u64,
    pub length: u64,
}

/// The non-empty intervals of a label set, by their number.
pub type Points = BTreeMap<u64, Sum>;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sum {
    pub value: u64,
    /// Number of slices with a value in the interval.
    pub slices: u64,
    last: Option<u64>,
}

impl History {
    /// By the values of `labels`, sorted by value, descending.
    pub fn points(
        &self,
        query: &Query,
        labels: &[String],
        steps: Steps,
        limit: usize,
    ) -> Vec<(Vec<String>, Points)> {
        let labels: Vec<_> = labels.iter().map(|label| label_name(label)).collect();
        let mut groups: IndexMap<Vec<String>, Points> = IndexMap::new();
        let by_language = labels.iter().any(|label| label == LANGUAGE);
        let query = &self.with_kind(query);
        self.each_chunk(query.from, query.until, |chunk| {
            let mut known: HashMap<Group, usize> = HashMap::new();
            chunk.visit_groups(query, by_language, |time, of_row, row| {
                let group = *known.entry(of_row).or_insert_with(|| {
                    let values = labels.iter().map(|label| chunk.label(of_row, label));
                    let entry = groups.entry(values.map(str::to_owned).collect());
                    let group = entry.index();
                    entry.or_default();
                    group
                });
                let number = time.saturating_sub(steps.start) / steps.length.max(1);
                if let Some((_, points)) = groups.get_index_mut(group) {
                    points.entry(number).or_default().add(time, row.value);
                }
            });
        });
        let mut groups: Vec<_> = groups.into_iter().collect();
        let total = |points: &Points| {
            points
                .values()
                .fold(0u64, |sum, it| sum.saturating_add(it.value))
        };
        groups.sort_by_cached_key(|(values, points)| {
            (std::cmp::Reverse(total(points)), values.clone())
        });
        groups.truncate(limit);
        groups
    }

    /// The distinct values of `labels`, at most `limit`; without names, of every label.
    pub fn label_sets(
        &self,
        query: &Query,
        labels: &[String],
        limit: usize,
    ) -> BTreeSet<Vec<(String, String)>> {
        let mut sets = BTreeSet::new();
        let by_language = labels.is_empty() || labels.iter().any(|label| label == LANGUAGE);
        let query = &self.with_kind(query);
        self.each_chunk(query.from, query.until, |chunk| {
            let mut of_chunk: BTreeSet<Group> = BTreeSet::new();
            chunk.visit_groups(query, by_language, |_, group, _| {
                of_chunk.insert(group);
            });
            for group in of_chunk {
                let names = match labels {
                    [] => chunk.label_names(group),
                    labels => labels.to_vec(),
                };
                let pairs = names.into_iter().map(|name| {
                    let value = chunk.label(group, &label_name(&name)).to_owned();
                    (name, value)
                });
                sets.insert(pairs.filter(|(_, value)| !value.is_empty()).collect());
                if sets.len() >= limit {
                    return;
                }
            }
        });
        sets
    }
}

impl Sum {
    fn add(&mut self, time: u64, value: u64) {
        self.value = self.value.saturating_add(value);
        // Slices are visited in order.
        if self.last != Some(time) {
            self.last = Some(time);
            self.slices += 1;
        }
    }
}

impl Chunk {
    /// Sorted, with the labels `service_name` and `language`.
    pub(super) fn label_names(&self, group: Group) -> Vec<String> {
        let labels = self.labels_of(group.series).iter();
        let mut names: Vec<String> = labels
            .map(|&(name, _)| self.text(name).to_owned())
            .collect();
        names.push(SERVICE_NAME.to_owned());
        if group.language != Language::Unknown {
            names.push(LANGUAGE.to_owned());
        }
        names.sort_unstable();
        names.dedup();
        names
    }
}
