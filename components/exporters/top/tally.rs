//! Adds up samples by function and by process.

use std::collections::hash_map::Entry;
use std::collections::{BTreeSet, HashMap};

use profcol_profile::{
    Attributes, Dictionary, LocationIdx, Model, Profile, SampleRef, StackIdx, Value,
};

/// How many functions are told apart in one interval; the others are counted together.
const FUNCTIONS: usize = 50_000;
/// How many processes are.
const PROCESSES: usize = 10_000;
/// How many types of samples are; those that come later are left out.
const TYPES: usize = 8;
/// No name is longer.
const NAME: usize = 256;
const OTHERS: &str = "(others)";

/// What came in an interval.
#[derive(Default)]
pub(super) struct Tally {
    /// Nanoseconds of Unix time: the first start and the last end of its profiles.
    pub span: Option<(u64, u64)>,
    pub types: Vec<OfType>,
}

/// Of one type of samples.
#[derive(Default)]
pub(super) struct OfType {
    /// What is counted, such as `cpu`.
    pub kind: String,
    pub unit: String,
    pub samples: u64,
    pub total: u64,
    names: HashMap<Name, usize>,
    pub functions: Vec<Function>,
    pub processes: HashMap<ProcessName, Process>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Name {
    /// Empty where it is not known.
    pub function: String,
    pub file: String,
}

#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Function {
    pub name: Name,
    /// In itself.
    pub own: u64,
    /// In itself and in what it calls.
    pub all: u64,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct ProcessName {
    pub name: String,
    /// The pod, container or unit that it belongs to.
    pub of: String,
}

#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Process {
    pub weight: u64,
    pub pids: BTreeSet<i64>,
}

/// The functions of the locations of one batch, by their numbers in the tally.
type Known = HashMap<LocationIdx, Vec<usize>>;

// === impl Tally ===

impl Tally {
    pub fn add(&mut self, model: &Model) {
        let tables = &*model.dictionary;
        let mut known: Vec<Known> = Vec::new();
        for row in &model.resources {
            let none = Vec::new();
            let attributes = row.resource.as_ref().map_or(&none, |it| &it.attributes);
            for profile in row.scopes.iter().flat_map(|scope| &scope.profiles) {
                let Some(place) = self.place(profile, tables) else {
                    continue;
                };
                known.resize_with(known.len().max(place + 1), Known::new);
                let (Some(of_type), Some(known)) =
                    (self.types.get_mut(place), known.get_mut(place))
                else {
                    continue;
                };
                of_type.add(profile, attributes, tables, known);
                let start = profile.time_unix_nano;
                let end = start.saturating_add(profile.duration_nano);
                let (first, last) = self.span.unwrap_or((start, end));
                self.span = Some((first.min(start), last.max(end)));
            }
        }
    }

    fn place(&mut self, profile: &Profile, tables: &Dictionary) -> Option<usize> {
        let (kind, unit) = measure(profile, tables);
        let known = self
            .types
            .iter()
            .position(|it| it.kind == kind && it.unit == unit);
        if known.is_none() && self.types.len() < TYPES {
            self.types.push(OfType {
                kind: kind.to_owned(),
                unit: unit.to_owned(),
                ..OfType::default()
            });
            return Some(self.types.len() - 1);
        }
        known
    }
}

// === impl OfType ===

impl OfType {
    fn add(
        &mut self,
        profile: &Profile,
        attributes: &Attributes,
        tables: &Dictionary,
        known: &mut Known,
    ) {
        let mut stacks: HashMap<StackIdx, u64> = HashMap::new();
        let mut whole = 0u64;
        let factor = factor(profile, tables);
        for sample in profile.samples.iter() {
            let (count, value) = weight(&sample);
            let value = value.saturating_mul(factor);
            self.samples += count;
            whole = whole.saturating_add(value);
            *stacks.entry(sample.stack).or_default() += value;
        }
        self.total = self.total.saturating_add(whole);
        self.add_process(attributes, whole);
        let mut met = Vec::new();
        for (stack, value) in stacks {
            self.add_stack(tables.stacks.get(stack), value, tables, known, &mut met);
        }
    }

    fn add_stack(
        &mut self,
        stack: &[LocationIdx],
        value: u64,
        tables: &Dictionary,
        known: &mut Known,
        met: &mut Vec<usize>,
    ) {
        met.clear();
        for &location in stack {
            let functions = match known.entry(location) {
                Entry::Occupied(known) => known.into_mut(),
                Entry::Vacant(place) => place.insert(self.functions_at(location, tables)),
            };
            met.extend_from_slice(functions);
        }
        if let Some(leaf) = met.first().and_then(|&leaf| self.functions.get_mut(leaf)) {
            leaf.own = leaf.own.saturating_add(value);
        }
        // A function that calls itself is there once.
        met.sort_unstable();
        met.dedup();
        for &number in &*met {
            if let Some(function) = self.functions.get_mut(number) {
                function.all = function.all.saturating_add(value);
            }
        }
    }

    /// Innermost first.
    fn functions_at(&mut self, location: LocationIdx, tables: &Dictionary) -> Vec<usize> {
        let row = tables.locations.get(location);
        let mapping = tables.mappings.get(row.location.mapping).mapping;
        let file = tables.strings.get(mapping.filename);
        let file = cut(file.rsplit('/').next().unwrap_or(file));
        let names = row.lines.iter().map(|line| {
            let function = tables.functions.get(line.function);
            function.map_or("", |function| tables.strings.get(function.name))
        });
        let mut names: Vec<String> = names.map(cut).collect();
        if names.is_empty() {
            names.push(String::new());
        }
        let names = names.into_iter().map(|function| Name {
            function,
            file: file.clone(),
        });
        names.map(|name| self.number(name)).collect()
    }

    fn number(&mut self, mut name: Name) -> usize {
        if self.functions.len() >= FUNCTIONS && !self.names.contains_key(&name) {
            name = Name {
                function: OTHERS.to_owned(),
                file: String::new(),
            };
        }
        let next = self.functions.len();
        let number = *self.names.entry(name.clone()).or_insert(next);
        if number == next {
            self.functions.push(Function {
                name,
                ..Function::default()
            });
        }
        number
    }

    fn add_process(&mut self, attributes: &Attributes, weight: u64) {
        let mut name = ProcessName {
            name: first(
                attributes,
                &["process.executable.name", "process.comm", "service.name"],
            ),
            of: first(
                attributes,
                &["k8s.pod.name", "container.name", "systemd.unit"],
            ),
        };
        if self.processes.len() >= PROCESSES && !self.processes.contains_key(&name) {
            name = ProcessName {
                name: OTHERS.to_owned(),
                of: String::new(),
            };
        }
        let process = self.processes.entry(name).or_default();
        process.weight = process.weight.saturating_add(weight);
        let pid = find(attributes, "process.pid").and_then(Value::as_int);
        if process.pids.len() < PROCESSES {
            process.pids.extend(pid);
        }
    }
}

/// What is measured, and in which unit. Samples of a clock are shown as the time they stand for.
fn measure<'a>(profile: &Profile, tables: &'a Dictionary) -> (&'a str, &'a str) {
    let text = |index| tables.strings.get(index);
    let of = match (profile.sample_type, profile.period_type) {
        (_, Some(period)) if factor(profile, tables) > 1 => period,
        (Some(sample), _) => sample,
        (None, _) => return ("", ""),
    };
    (text(of.kind), text(of.unit))
}

/// How much of the period's unit a counted sample stands for.
fn factor(profile: &Profile, tables: &Dictionary) -> u64 {
    let is_count = profile
        .sample_type
        .is_some_and(|it| tables.strings.get(it.unit) == "count");
    match u64::try_from(profile.period) {
        Ok(period) if is_count && period > 0 && profile.period_type.is_some() => period,
        _ => 1,
    }
}

/// How many samples it stands for, and its value.
fn weight(sample: &SampleRef<'_>) -> (u64, u64) {
    let least = u64::from(!sample.values.is_empty());
    let count = (sample.timestamps.len() as u64).max(least);
    (count, u64::try_from(sample.observed()).unwrap_or(0))
}

fn find<'a>(attributes: &'a Attributes, key: &str) -> Option<&'a Value> {
    let found = attributes.iter().find(|it| *it.key == *key)?;
    Some(&found.value)
}

/// The first of these attributes that has a text.
fn first(attributes: &Attributes, keys: &[&str]) -> String {
    let mut texts = keys
        .iter()
        .filter_map(|key| find(attributes, key)?.as_str());
    cut(texts.next().unwrap_or(""))
}

fn cut(text: &str) -> String {
    text[..text.floor_char_boundary(NAME)].to_owned()
}
