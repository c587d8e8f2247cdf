//! A batch with labels instead of resources and one row per sample.

use std::collections::HashMap;

use profcol_profile::{AttributeIdx, Model, Profile, ScopeProfiles, StackIdx, ValueType};

use crate::labels::{self, LabelRules, sanitized};
use crate::runs::{Runs, Texts};

/// Parca Agent's names for CPU profiles.
const AGENT: &str = "parca_agent";
const MEMORY: &str = "memory";
const UNKNOWN: &str = "unknown";
const DELTA: &str = "delta";

/// The rows of a batch as columns.
pub struct Table {
    /// Sorted by name.
    pub labels: Vec<(String, Texts)>,
    pub stacks: Vec<StackIdx>,
    pub values: Vec<i64>,
    pub producer: Texts,
    pub sample_type: Texts,
    pub sample_unit: Texts,
    pub period_type: Texts,
    pub period_unit: Texts,
    pub temporality: Texts,
    pub period: Runs<i64>,
    pub duration: Runs<i64>,
    /// Nanoseconds since the Unix epoch, the same for all samples of a profile: if the rows of a query have several
    /// timestamps, Parca's server cannot determine their total duration.
    pub timestamp: Runs<i64>,
}

/// A label as the index of its column and the key of its value.
type Label = (u32, u32);

struct Building<'a> {
    model: &'a Model,
    rules: &'a LabelRules,
    columns: HashMap<String, u32>,
    /// By attribute row; `None` for attributes that do not become labels.
    of_attributes: Vec<Option<Option<Label>>>,
    table: Table,
}

impl Table {
    pub fn new(model: &Model, rules: &LabelRules) -> Self {
        let mut building = Building {
            model,
            rules,
            columns: HashMap::new(),
            of_attributes: vec![None; model.dictionary.attributes.rows().len()],
            table: Self::empty(),
        };
        for resource in &model.resources {
            let attributes = resource.resource.as_deref();
            let attributes = attributes.map(|resource| rules.resource_labels(&resource.attributes));
            let outer = building.labels(attributes.unwrap_or_default());
            for scope in &resource.scopes {
                building.add_scope(scope, &outer);
            }
        }
        building.finish()
    }

    fn empty() -> Self {
        Self {
            labels: Vec::new(),
            stacks: Vec::new(),
            values: Vec::new(),
            producer: Texts::default(),
            sample_type: Texts::default(),
            sample_unit: Texts::default(),
            period_type: Texts::default(),
            period_unit: Texts::default(),
            temporality: Texts::default(),
            period: Runs::default(),
            duration: Runs::default(),
            timestamp: Runs::default(),
        }
    }

    pub fn rows(&self) -> usize {
        self.values.len()
    }
}

impl<'a> Building<'a> {
    fn labels(&mut self, labels: Vec<(String, String)>) -> Vec<Label> {
        let labels = labels.into_iter();
        labels
            .map(|(name, text)| self.label(&name, &text))
            .collect()
    }

    fn label(&mut self, name: &str, text: &str) -> Label {
        let column = self.column(name);
        let (_, texts) = &mut self.table.labels[column as usize];
        (column, texts.key(text))
    }

    fn column(&mut self, name: &str) -> u32 {
        if let Some(&column) = self.columns.get(name) {
            return column;
        }
        let column = self.table.labels.len() as u32;
        self.table.labels.push((name.to_owned(), Texts::default()));
        self.columns.insert(name.to_owned(), column);
        column
    }

    fn add_scope(&mut self, scope: &ScopeProfiles, of_resource: &[Label]) {
        let attributes = scope.scope.as_deref().map(|scope| &scope.attributes);
        let attributes = attributes.map(|attributes| self.rules.scope_labels(attributes));
        let mut outer = self.labels(attributes.unwrap_or_default());
        add(&mut outer, of_resource.iter().copied());
        let name = scope.scope.as_deref().map_or("", |scope| &scope.name);
        for profile in &scope.profiles {
            let mut of_profile = self.labels_of(&profile.attributes);
            add(&mut of_profile, outer.iter().copied());
            self.add_profile(profile, name, &of_profile);
        }
    }

    fn add_profile(&mut self, profile: &Profile, scope: &str, outer: &[Label]) {
        // Sort equal rows next to each other.
        let mut rows: Vec<(Vec<Label>, StackIdx, i64)> = Vec::with_capacity(profile.samples.len());
        for sample in profile.samples.iter() {
            let labels = self.labels_of(sample.attributes);
            rows.push((labels, sample.stack, sample.observed()));
        }
        rows.sort_unstable_by(|a, b| (&a.0, a.1.get()).cmp(&(&b.0, b.1.get())));
        rows.dedup_by(|next, kept| {
            let is_same = next.0 == kept.0 && next.1 == kept.1;
            if is_same {
                kept.2 = kept.2.saturating_add(next.2);
            }
            is_same
        });
        let count = rows.len();
        for (mut labels, stack, value) in rows {
            add(&mut labels, outer.iter().copied());
            let row = self.table.rows();
            for (column, key) in labels {
                let (_, texts) = &mut self.table.labels[column as usize];
                texts.fill(row);
                texts.push_key(Some(key));
            }
            self.table.stacks.push(stack);
            self.table.values.push(value);
        }
        self.add_kind(profile, scope, count);
    }

    fn add_kind(&mut self, profile: &Profile, scope: &str, rows: usize) {
        let (kind, unit) = self.value_type(profile.sample_type);
        let (period_kind, period_unit) = match profile.period_type {
            Some(period) => self.value_type(Some(period)),
            None => (kind, unit),
        };
        let signed = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
        let is_delta = profile.duration_nano != 0;
        let producer = producer(scope, period_kind, kind);
        let table = &mut self.table;
        for (texts, text) in [
            (&mut table.producer, &*producer),
            (&mut table.sample_type, kind),
            (&mut table.sample_unit, unit),
            (&mut table.period_type, period_kind),
            (&mut table.period_unit, period_unit),
        ] {
            texts.push_rows(Some(text), rows);
        }
        let temporality = is_delta.then_some(DELTA);
        table.temporality.push_rows(temporality, rows);
        table.period.push_rows(profile.period, rows);
        let duration = signed(profile.duration_nano);
        table.duration.push_rows(duration, rows);
        let time = signed(profile.time_unix_nano);
        table.timestamp.push_rows(time, rows);
    }

    /// Parca does not find profiles with an unnamed type.
    fn value_type(&self, row: Option<ValueType>) -> (&'a str, &'a str) {
        let row = row.unwrap_or_default();
        let text = |row| match self.model.dictionary.strings.get(row) {
            "" => UNKNOWN,
            text => text,
        };
        (text(row.kind), text(row.unit))
    }

    /// The labels of attributes by column; the first wins if several share a name.
    fn labels_of(&mut self, attributes: &[AttributeIdx]) -> Vec<Label> {
        let mut labels = Vec::with_capacity(attributes.len());
        for &attribute in attributes {
            let label = self.label_of(attribute);
            add(&mut labels, label);
        }
        labels.sort_unstable();
        labels
    }

    fn label_of(&mut self, row: AttributeIdx) -> Option<Label> {
        if let Some(Some(label)) = self.of_attributes.get(row.row()) {
            return *label;
        }
        let dictionary = &self.model.dictionary;
        let label = dictionary.attributes.get(row).and_then(|attribute| {
            let key = dictionary.strings.get(attribute.key);
            let name = self.rules.sample_label(key)?;
            let text = labels::text(&attribute.value)?;
            Some((name, text))
        });
        let label = label.map(|(name, text)| self.label(&name, &text));
        if let Some(slot) = self.of_attributes.get_mut(row.row()) {
            *slot = Some(label);
        }
        label
    }

    fn finish(mut self) -> Table {
        let rows = self.table.rows();
        for (_, texts) in &mut self.table.labels {
            texts.fill(rows);
        }
        for (name, text) in &self.rules.external {
            let column = self.column(&sanitized(name));
            let (_, texts) = &mut self.table.labels[column as usize];
            texts.fill(rows);
            texts.replace_none(text);
        }
        let mut table = self.table;
        // Drop columns without any value.
        table.labels.retain(|(_, texts)| texts.has_some());
        table.labels.sort_unstable_by(|(a, _), (b, _)| a.cmp(b));
        table
    }
}

/// Adds labels whose names are not present yet.
fn add(labels: &mut Vec<Label>, more: impl IntoIterator<Item = Label>) {
    for (column, key) in more {
        if labels.iter().all(|(present, _)| *present != column) {
            labels.push((column, key));
        }
    }
}

/// The name under which Parca lists the profiles: that of its agent for profiles that the agent would collect,
/// otherwise the name of the profiler.
fn producer(scope: &str, period_kind: &str, sample_kind: &str) -> String {
    let is_profiler = scope.is_empty()
        || scope.starts_with("profcol/")
        || scope == "go.opentelemetry.io/ebpf-profiler";
    match (period_kind, sample_kind) {
        ("cpu", _) | (_, "wallclock") if is_profiler => AGENT.to_owned(),
        ("space", _) if is_profiler => MEMORY.to_owned(),
        _ if scope.is_empty() => UNKNOWN.to_owned(),
        _ => sanitized(scope).into_owned(),
    }
}
