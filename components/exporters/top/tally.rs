//! Adds up samples by function and by process.
//!
//! Stacks with deferred symbols are kept until they are shown: only then it is known
//! which of their frames are in the same function.

use std::collections::hash_map::Entry;
use std::collections::{BTreeSet, HashMap};

use profcol_component::{DeferredSymbol, DeferredSymbols, SymbolLookup};
use profcol_flamegraph::{Measured, measured};
use profcol_profile::{Attributes, Dictionary, LocationIdx, Model, StackIdx, Value};

use super::own_process;

/// Maximum number of distinct functions per interval; others are counted together.
const MAX_FUNCTIONS: usize = 50_000;
/// Maximum number of distinct processes.
const MAX_PROCESSES: usize = 10_000;
/// Maximum number of sample types; later ones are ignored.
const MAX_SAMPLE_TYPES: usize = 8;
/// Maximum number of stacks with deferred symbols, and of their locations; others count as pending.
const MAX_PENDING_STACKS: usize = 20_000;
const MAX_PENDING_LOCATIONS: usize = 50_000;
/// Maximum length of a name.
const MAX_NAME_LEN: usize = 256;
const OTHER_LABEL: &str = "(others)";
/// Shown for code whose symbol is still pending.
const PENDING_LABEL: &str = "naming...";

/// The samples of an interval.
#[derive(Default)]
pub(super) struct Tally {
    /// Start of the first and end of the last profile, in nanoseconds of Unix time.
    pub span: Option<(u64, u64)>,
    pub types: Vec<SampleTypeTally>,
}

/// The samples of one type.
#[derive(Default)]
pub(super) struct SampleTypeTally {
    /// The name of the type, such as `cpu`.
    pub kind: String,
    pub unit: String,
    pub samples: u64,
    pub total: u64,
    /// The value of profcol itself, which is not ranked.
    pub self_value: u64,
    names: HashMap<Name, usize>,
    pub functions: Vec<Function>,
    pending: Vec<PendingLocation>,
    pending_indices: HashMap<DeferredSymbol, usize>,
    /// The values of stacks with deferred symbols.
    pending_stacks: HashMap<Vec<Frame>, u64>,
    pub processes: HashMap<ProcessName, Process>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Name {
    /// Empty if unknown.
    pub function: String,
    pub file: String,
}

#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Function {
    pub name: Name,
    /// The value in the function itself.
    pub self_value: u64,
    /// The value in the function and its callees.
    pub all: u64,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct ProcessName {
    pub name: String,
    /// Its pod, container or unit.
    pub of: String,
}

#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Process {
    pub value: u64,
    pub pids: BTreeSet<i64>,
}

/// A location with a deferred symbol.
struct PendingLocation {
    name: DeferredSymbol,
    file: String,
}

/// A frame, by its index in the tally.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Frame {
    Function(usize),
    PendingLocation(usize),
}

/// The frames of the locations in one batch.
type FrameCache = HashMap<LocationIdx, Vec<Frame>>;

/// The tables of a batch, and its deferred symbols.
#[derive(Clone, Copy)]
struct Tables<'a> {
    dictionary: &'a Dictionary,
    deferred_symbols: &'a DeferredSymbols,
}

// === impl Tally ===

impl Tally {
    pub fn add(&mut self, model: &Model, deferred_symbols: &DeferredSymbols) {
        let dictionary = &*model.dictionary;
        let tables = Tables {
            dictionary,
            deferred_symbols,
        };
        let mut known: Vec<FrameCache> = Vec::new();
        for row in &model.resources {
            let none = Vec::new();
            let attributes = row.resource.as_ref().map_or(&none, |it| &it.attributes);
            let scopes = row.scopes.iter();
            for measured in scopes.flat_map(|scope| measured(scope, dictionary)) {
                let Some(index) = self.type_index(&measured) else {
                    continue;
                };
                known.resize_with(known.len().max(index + 1), FrameCache::new);
                let (Some(tally), Some(known)) = (self.types.get_mut(index), known.get_mut(index))
                else {
                    continue;
                };
                tally.add(&measured, attributes, tables, known);
                let start = measured.profile.time_unix_nano;
                let end = start.saturating_add(measured.profile.duration_nano);
                let (first, last) = self.span.unwrap_or((start, end));
                self.span = Some((first.min(start), last.max(end)));
            }
        }
    }

    /// To be called once, after everything was added.
    pub fn resolve_pending(&mut self) {
        self.types
            .iter_mut()
            .for_each(SampleTypeTally::resolve_pending);
    }

    pub fn samples(&self) -> u64 {
        self.types.iter().map(|it| it.samples).sum()
    }

    fn type_index(&mut self, measured: &Measured<'_>) -> Option<usize> {
        let (kind, unit) = (truncated(measured.name), truncated(measured.unit));
        let known = self
            .types
            .iter()
            .position(|it| it.kind == kind && it.unit == unit);
        if known.is_none() && self.types.len() < MAX_SAMPLE_TYPES {
            self.types.push(SampleTypeTally {
                kind: kind.to_owned(),
                unit: unit.to_owned(),
                ..SampleTypeTally::default()
            });
            return Some(self.types.len() - 1);
        }
        known
    }
}

// === impl SampleTypeTally ===

impl SampleTypeTally {
    fn add(
        &mut self,
        measured: &Measured<'_>,
        attributes: &Attributes,
        tables: Tables<'_>,
        known: &mut FrameCache,
    ) {
        let mut stacks: HashMap<StackIdx, u64> = HashMap::new();
        let mut whole = 0u64;
        for sample in measured.profile.samples.iter() {
            let weight = measured.weigh(&sample);
            self.samples += weight.samples;
            whole = whole.saturating_add(weight.value);
            let sum = stacks.entry(sample.stack).or_default();
            *sum = sum.saturating_add(weight.value);
        }
        self.total = self.total.saturating_add(whole);
        if is_own_process(attributes) {
            self.self_value = self.self_value.saturating_add(whole);
            return;
        }
        self.add_process(attributes, whole);
        for (stack, value) in stacks {
            let stack = tables.dictionary.stacks.get(stack);
            self.add_stack(stack, value, tables, known);
        }
    }

    fn add_stack(
        &mut self,
        stack: &[LocationIdx],
        value: u64,
        tables: Tables<'_>,
        known: &mut FrameCache,
    ) {
        let mut frames = Vec::with_capacity(stack.len());
        for &location in stack {
            let found = match known.entry(location) {
                Entry::Occupied(known) => known.into_mut(),
                Entry::Vacant(entry) => entry.insert(self.frames_at(location, tables)),
            };
            frames.extend_from_slice(found);
        }
        let is_named = |frame: &Frame| matches!(frame, Frame::Function(_));
        if frames.iter().all(is_named) {
            self.add_frames(&frames, &[], value);
            return;
        }
        let has_room = self.pending_stacks.len() < MAX_PENDING_STACKS;
        if has_room || self.pending_stacks.contains_key(&frames) {
            let sum = self.pending_stacks.entry(frames).or_default();
            *sum = sum.saturating_add(value);
        } else {
            let naming: Vec<Frame> = frames.into_iter().map(|it| self.naming(it)).collect();
            self.add_frames(&naming, &[], value);
        }
    }

    /// `pending` has the functions of each pending location.
    fn add_frames(&mut self, frames: &[Frame], pending: &[Vec<usize>], value: u64) {
        let mut met: Vec<usize> = Vec::with_capacity(frames.len());
        for frame in frames {
            match *frame {
                Frame::Function(number) => met.push(number),
                Frame::PendingLocation(number) => {
                    met.extend(pending.get(number).into_iter().flatten())
                }
            }
        }
        if let Some(leaf) = met.first().and_then(|&leaf| self.functions.get_mut(leaf)) {
            leaf.self_value = leaf.self_value.saturating_add(value);
        }
        // A recursive function counts once.
        met.sort_unstable();
        met.dedup();
        for &number in &met {
            if let Some(function) = self.functions.get_mut(number) {
                function.all = function.all.saturating_add(value);
            }
        }
    }

    fn resolve_pending(&mut self) {
        let pending = std::mem::take(&mut self.pending);
        let functions = pending.into_iter().map(|PendingLocation { name, file }| {
            let names = match name.lookup() {
                SymbolLookup::Resolved(frames) => {
                    frames.iter().map(|it| truncate(&it.name)).collect()
                }
                SymbolLookup::Pending => vec![PENDING_LABEL.to_owned()],
                SymbolLookup::NotFound => vec![String::new()],
            };
            self.numbers(names, &file)
        });
        let functions: Vec<Vec<usize>> = functions.collect();
        for (frames, value) in std::mem::take(&mut self.pending_stacks) {
            self.add_frames(&frames, &functions, value);
        }
    }

    /// The substitute for a frame that cannot be kept until it is symbolized.
    fn naming(&mut self, frame: Frame) -> Frame {
        let file = match frame {
            Frame::Function(_) => return frame,
            Frame::PendingLocation(number) => self.pending.get(number).map(|it| it.file.clone()),
        };
        Frame::Function(self.number(Name {
            function: PENDING_LABEL.to_owned(),
            file: file.unwrap_or_default(),
        }))
    }

    /// Innermost first.
    fn frames_at(&mut self, location: LocationIdx, tables: Tables<'_>) -> Vec<Frame> {
        let Tables {
            dictionary,
            deferred_symbols,
        } = tables;
        let row = dictionary.locations.get(location);
        let mapping = dictionary.mappings.get(row.location.mapping).mapping;
        let file = dictionary.strings.get(mapping.filename);
        let file = truncate(last_component(file));
        if row.lines.is_empty() {
            return vec![match deferred_symbols.find(dictionary, location) {
                Some(name) => self.pending(name, file),
                None => Frame::Function(self.number(Name {
                    function: String::new(),
                    file,
                })),
            }];
        }
        let names = row.lines.iter().map(|line| {
            let function = dictionary.functions.get(line.function);
            let text = |index: Option<_>| index.map_or("", |index| dictionary.strings.get(index));
            let source = text(function.map(|function| function.filename));
            Name {
                function: truncate(text(function.map(|function| function.name))),
                // Interpreted code is in no binary.
                file: match file.as_str() {
                    "" => truncate(last_component(source)),
                    file => file.to_owned(),
                },
            }
        });
        let names: Vec<Name> = names.collect();
        let names = names.into_iter();
        names
            .map(|name| Frame::Function(self.number(name)))
            .collect()
    }

    fn pending(&mut self, name: DeferredSymbol, file: String) -> Frame {
        let next = self.pending.len();
        if next >= MAX_PENDING_LOCATIONS && !self.pending_indices.contains_key(&name) {
            let function = PENDING_LABEL.to_owned();
            return Frame::Function(self.number(Name { function, file }));
        }
        let number = *self.pending_indices.entry(name.clone()).or_insert(next);
        if number == next {
            self.pending.push(PendingLocation { name, file });
        }
        Frame::PendingLocation(number)
    }

    fn numbers(&mut self, functions: Vec<String>, file: &str) -> Vec<usize> {
        let names = functions.into_iter().map(|function| Name {
            function,
            file: file.to_owned(),
        });
        names.map(|name| self.number(name)).collect()
    }

    fn number(&mut self, mut name: Name) -> usize {
        if self.functions.len() >= MAX_FUNCTIONS && !self.names.contains_key(&name) {
            name = Name {
                function: OTHER_LABEL.to_owned(),
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

    fn add_process(&mut self, attributes: &Attributes, value: u64) {
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
        if self.processes.len() >= MAX_PROCESSES && !self.processes.contains_key(&name) {
            name = ProcessName {
                name: OTHER_LABEL.to_owned(),
                of: String::new(),
            };
        }
        let process = self.processes.entry(name).or_default();
        process.value = process.value.saturating_add(value);
        let pid = find(attributes, "process.pid").and_then(Value::as_int);
        if process.pids.len() < MAX_PROCESSES {
            process.pids.extend(pid);
        }
    }
}

/// Whether it is profcol, or a reader that it started.
fn is_own_process(attributes: &Attributes) -> bool {
    let pid = |key| find(attributes, key).and_then(Value::as_int);
    let name = find(attributes, "process.executable.name").and_then(Value::as_str);
    own_process::is_own(name, pid("process.pid"), pid("process.parent_pid"))
}

fn find<'a>(attributes: &'a Attributes, key: &str) -> Option<&'a Value> {
    let found = attributes.iter().find(|it| *it.key == *key)?;
    Some(&found.value)
}

/// The first of these attributes with a non-empty text.
fn first(attributes: &Attributes, keys: &[&str]) -> String {
    let mut texts = keys
        .iter()
        .filter_map(|key| find(attributes, key)?.as_str());
    truncate(texts.next().unwrap_or(""))
}

fn last_component(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

fn truncate(text: &str) -> String {
    truncated(text).to_owned()
}

fn truncated(text: &str) -> &str {
    &text[..text.floor_char_boundary(MAX_NAME_LEN)]
}
