//! Some minutes of profiles with shared tables.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use foldhash::fast::RandomState;
use indexmap::IndexSet;
use profcol_component::{DeferredSymbol, DeferredSymbols, SymbolFrame, SymbolLookup};
use profcol_flamegraph::{
    Code, FrameAdder, FrameId, FrameTable, Numbers, SampleType, Weight, measured,
};
use profcol_labels::{sanitized, text};
use profcol_profile::{AttributeIdx, Attributes, LocationIdx, Model, Profile, SampleRef, StackIdx};

use crate::functions::{Functions, allocated};

/// Maximum length of a label value: command lines can be long.
const MAX_LABEL_LEN: usize = 256;
/// The counts of a shared text.
const SHARED_HEADER: usize = 16;
/// The parent of outermost frames.
const ROOT: u32 = u32::MAX;

/// The segment and the index of a record on disk.
pub(super) type RecordId = (u64, u32);

pub(super) struct Chunk {
    resolution: Duration,
    pub frames: FrameTable,
    locations: Vec<Location>,
    /// Empty once the chunk is finished.
    named: HashMap<Functions, u32, RandomState>,
    /// Likewise.
    unnamed: HashMap<UnnamedCode, u32, RandomState>,
    /// Locations whose symbols are deferred.
    unresolved: Vec<u32>,
    /// Parents come before their children.
    pub nodes: Vec<Node>,
    /// Empty once the chunk is finished.
    node_ids: HashMap<Node, u32, RandomState>,
    pub texts: IndexSet<Arc<str>, RandomState>,
    pub series: IndexSet<Labels, RandomState>,
    label_bytes: usize,
    text_bytes: usize,
    function_bytes: usize,
    /// The attribute of each label, by string number.
    attributes: HashMap<u32, LabelAttribute, RandomState>,
    types: IndexSet<SampleType>,
    /// Types whose samples are counted.
    counted_types: HashSet<u32>,
    pub slices: Vec<Slice>,
    /// The slice being filled, and its start in units of `resolution`.
    open: HashMap<RowKey, Weight, RandomState>,
    open_start: u64,
    /// Unix time in milliseconds.
    range: Option<(u64, u64)>,
    samples: u64,
    row_bytes: usize,
    table_bytes: usize,
    /// The number of slices that are on disk.
    archived: usize,
    /// The first of its records on disk.
    pub first_record: Option<RecordId>,
}

/// The attribute of a label.
#[derive(Clone, Debug)]
struct LabelAttribute {
    name: Arc<str>,
    is_of_sample: bool,
}

/// Label names and values by string number, sorted.
pub(super) type Labels = Box<[(u32, u32)]>;

/// A location called from its parent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Node {
    pub parent: u32,
    pub location: u32,
}

enum Location {
    Named(Functions),
    /// Until it is symbolized. Few are, so this must not make the others larger.
    Unnamed(Box<UnnamedCode>),
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct UnnamedCode {
    /// A frame of its binary.
    frame: FrameId,
    symbol: DeferredSymbol,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct RowKey {
    kind: u32,
    series: u32,
    node: u32,
}

/// The samples of one interval.
pub(super) struct Slice {
    /// Unix time in milliseconds.
    pub start: u64,
    pub rows: Box<[Row]>,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Row {
    pub kind: u32,
    pub series: u32,
    pub node: u32,
    pub samples: u32,
    pub value: u64,
}

impl Row {
    fn new((key, weight): (&RowKey, &Weight)) -> Self {
        Self {
            kind: key.kind,
            series: key.series,
            node: key.node,
            samples: u32::try_from(weight.samples).unwrap_or(u32::MAX),
            value: weight.value,
        }
    }
}

impl Chunk {
    pub fn new(resolution: Duration) -> Self {
        Self {
            resolution,
            frames: FrameTable::default(),
            locations: Vec::new(),
            named: HashMap::default(),
            unnamed: HashMap::default(),
            unresolved: Vec::new(),
            nodes: Vec::new(),
            node_ids: HashMap::default(),
            texts: IndexSet::default(),
            series: IndexSet::default(),
            label_bytes: 0,
            text_bytes: 0,
            function_bytes: 0,
            attributes: HashMap::default(),
            counted_types: HashSet::default(),
            types: IndexSet::default(),
            slices: Vec::new(),
            open: HashMap::default(),
            open_start: 0,
            range: None,
            samples: 0,
            row_bytes: 0,
            table_bytes: 0,
            archived: 0,
            first_record: None,
        }
    }

    pub fn add(&mut self, model: &Model, symbols: &DeferredSymbols, sample_labels: &[String]) {
        let mut batch = Batch {
            model,
            symbols,
            adder: FrameAdder::new(&model.dictionary),
            locations: Numbers::new(model.dictionary.locations.rows().len()),
            stacks: Numbers::new(model.dictionary.stacks.len()),
            path: Vec::new(),
        };
        let mut resources = Vec::with_capacity(model.resources.len());
        let mut profiles = Vec::new();
        for row in &model.resources {
            let none = Vec::new();
            let attributes = row.resource.as_ref().map_or(&none, |it| &it.attributes);
            let scopes = row.scopes.iter();
            let measured = scopes.flat_map(|scope| measured(scope, &model.dictionary));
            profiles.extend(measured.map(|it| (resources.len(), it)));
            resources.push(ResourceSeries {
                labels: self.labels(attributes),
                series: HashMap::default(),
            });
        }
        // A batch may have several intervals of each resource.
        profiles.sort_by_key(|(_, measured)| self.slice_number(measured.profile));
        for (resource, measured) in profiles {
            let Some(resource) = resources.get_mut(resource) else {
                continue;
            };
            self.open_slice(measured.profile);
            let kind = self.types.insert_full(measured.sample_type()).0 as u32;
            if measured.is_count() {
                self.counted_types.insert(kind);
            }
            for sample in measured.profile.samples.iter() {
                let own = own_labels(&sample, model, sample_labels);
                let series = match resource.series.get(&own) {
                    Some(&known) => known,
                    None => {
                        let number = self.series_of(&resource.labels, &own, model);
                        resource.series.insert(own, number);
                        number
                    }
                };
                let node = self.node_of(sample.stack, &mut batch);
                let weight = measured.weigh(&sample);
                self.samples += weight.samples;
                let row = self.open.entry(RowKey { kind, series, node }).or_default();
                row.samples += weight.samples;
                row.value = row.value.saturating_add(weight.value);
            }
        }
        self.table_bytes = self.measure();
    }

    /// Closes the open slice, and frees what only `add` needs.
    pub fn finish(&mut self) {
        self.seal();
        self.named = HashMap::default();
        self.unnamed = HashMap::default();
        self.node_ids = HashMap::default();
        self.open = HashMap::default();
        self.locations.shrink_to_fit();
        self.nodes.shrink_to_fit();
        self.slices.shrink_to_fit();
        self.series.shrink_to_fit();
        self.texts.shrink_to_fit();
        self.table_bytes = self.measure();
    }

    /// Closes the open slice, and resolves deferred symbols before their cache evicts them.
    pub fn seal(&mut self) {
        self.resolve_symbols();
        let open = std::mem::take(&mut self.open);
        if open.is_empty() {
            return;
        }
        let mut rows: Vec<Row> = open.iter().map(Row::new).collect();
        rows.sort_unstable_by_key(|row| (row.kind, row.series, row.node));
        self.row_bytes += size_of_val(&*rows) + size_of::<Slice>();
        self.slices.push(Slice {
            start: self.open_start * self.resolution.as_millis() as u64,
            rows: rows.into(),
        });
    }

    pub fn resolve_symbols(&mut self) {
        let unresolved = std::mem::take(&mut self.unresolved);
        for number in unresolved {
            let Some(location) = self.locations.get_mut(number as usize) else {
                continue;
            };
            let Location::Unnamed(code) = location else {
                continue;
            };
            let frame = code.frame;
            *location = match code.symbol.lookup() {
                SymbolLookup::Pending => {
                    self.unresolved.push(number);
                    continue;
                }
                SymbolLookup::NotFound => Location::Named(Functions::One([frame])),
                SymbolLookup::Resolved(lines) => {
                    let unnamed = self.frames.get(frame).copied().unwrap_or_default();
                    let binary = self.frames.text(unnamed.binary).to_owned();
                    let code = Code {
                        binary: &binary,
                        kind: unnamed.kind,
                        language: unnamed.language,
                    };
                    let lines = lines.iter().map(SymbolFrame::line);
                    let functions = self.frames.location(code, lines);
                    let functions = Functions::from(&*functions);
                    self.function_bytes += functions.heap_size();
                    Location::Named(functions)
                }
            };
        }
    }

    /// The functions of a node, outermost first.
    pub fn functions(&self, node: Node) -> &[FrameId] {
        match self.locations.get(node.location as usize) {
            Some(Location::Named(frames)) => frames,
            Some(Location::Unnamed(code)) => std::slice::from_ref(&code.frame),
            None => &[],
        }
    }

    /// The rows and the start of each slice that starts in `from..until`.
    pub fn rows(&self, from: u64, until: u64) -> impl Iterator<Item = (u64, Cow<'_, [Row]>)> {
        let sealed = self
            .slices
            .iter()
            .map(|slice| (slice.start, Cow::Borrowed(&*slice.rows)));
        let open: Vec<Row> = self.open.iter().map(Row::new).collect();
        let start = self.open_start * self.resolution.as_millis() as u64;
        sealed
            .chain(std::iter::once((start, Cow::Owned(open))))
            .filter(move |(start, _)| (from..until).contains(start))
    }

    /// Closes the open slice if it ended before `time`, in milliseconds of Unix time.
    pub fn seal_until(&mut self, time: u64) {
        let end = self.slice_end(self.open_start * self.resolution.as_millis() as u64);
        if end <= time {
            self.seal();
        }
    }

    /// The first `limit` slices that are not on disk and ended before `time`.
    pub fn unarchived(&self, time: u64, limit: usize) -> Range<usize> {
        let left = self.slices.get(self.archived..).unwrap_or_default();
        let ended = left
            .iter()
            .take(limit)
            .take_while(|slice| self.slice_end(slice.start) <= time);
        self.archived..self.archived + ended.count()
    }

    /// Whether all samples are on disk.
    pub fn is_archived(&self) -> bool {
        self.archived == self.slices.len() && self.open.is_empty()
    }

    pub fn set_archived(&mut self, slices: usize, record: RecordId) {
        self.archived = slices;
        self.first_record.get_or_insert(record);
    }

    /// Samples that are not on disk.
    pub fn unarchived_samples(&self) -> u64 {
        let sealed = self.slices.get(self.archived..).unwrap_or_default().iter();
        let sealed = sealed.flat_map(|slice| slice.rows.iter());
        let sealed: u64 = sealed.map(|row| u64::from(row.samples)).sum();
        sealed + self.open.values().map(|it| it.samples).sum::<u64>()
    }

    pub fn slice_end(&self, start: u64) -> u64 {
        start.saturating_add(self.resolution.as_millis() as u64)
    }

    pub fn location_count(&self) -> usize {
        self.locations.len()
    }

    pub fn labels_of(&self, series: u32) -> &[(u32, u32)] {
        self.series
            .get_index(series as usize)
            .map_or(&[], |labels| labels)
    }

    pub fn attribute_name(&self, label: u32) -> &str {
        let attribute = self.attributes.get(&label);
        attribute.map_or("", |attribute| &attribute.name)
    }

    pub fn is_of_sample(&self, label: u32) -> bool {
        let attribute = self.attributes.get(&label);
        attribute.is_some_and(|attribute| attribute.is_of_sample)
    }

    pub fn kind(&self, number: u32) -> Option<&SampleType> {
        self.types.get_index(number as usize)
    }

    pub fn is_counted(&self, kind: u32) -> bool {
        self.counted_types.contains(&kind)
    }

    pub fn types(&self) -> impl Iterator<Item = &SampleType> {
        self.types.iter()
    }

    pub fn kind_number(&self, name: &str) -> Option<u32> {
        let row = self.types.iter().position(|kind| kind.name == name)?;
        u32::try_from(row).ok()
    }

    pub fn text(&self, number: u32) -> &str {
        self.texts
            .get_index(number as usize)
            .map_or("", |text| text)
    }

    pub fn range(&self) -> Option<(u64, u64)> {
        self.range
    }

    /// The time covered by its slices.
    pub fn span(&self) -> Duration {
        let span = self
            .range
            .map_or(0, |(start, end)| end.saturating_sub(start));
        Duration::from_millis(span)
    }

    pub fn samples(&self) -> u64 {
        self.samples
    }

    pub fn bytes(&self) -> usize {
        const PER_OPEN_ROW: usize = (size_of::<RowKey>() + size_of::<Weight>()) * 2;
        self.table_bytes + self.row_bytes + self.open.len() * PER_OPEN_ROW
    }

    fn measure(&self) -> usize {
        /// Hash tables have free slots.
        const HASHED: usize = 2;
        let frames = self.frames.heap_size();
        let per_named = (size_of::<Functions>() + 8) * HASHED;
        let per_unnamed = (size_of::<UnnamedCode>() + 8) * HASHED;
        let per_node_id = (size_of::<Node>() + 8) * HASHED;
        let per_series = size_of::<Labels>() + 24;
        let per_text = size_of::<Arc<str>>() + 24;
        // Those of `named` are copies.
        let functions = self.function_bytes * if self.named.is_empty() { 1 } else { 2 };
        frames
            + self.locations.len() * size_of::<Location>()
            + functions
            + self.unresolved.len() * allocated(size_of::<UnnamedCode>())
            + self.named.len() * per_named
            + self.unnamed.len() * per_unnamed
            + size_of_val(&*self.nodes)
            + self.node_ids.len() * per_node_id
            + self.series.len() * per_series
            + self.label_bytes
            + self.texts.len() * per_text
            + self.text_bytes
    }

    /// The start of a profile's slice in units of `resolution`.
    fn slice_number(&self, profile: &Profile) -> u64 {
        // A profile from the future must not make all others look old.
        profile.time_unix_nano.min(now()) / self.resolution.as_nanos() as u64
    }

    fn open_slice(&mut self, profile: &Profile) {
        let resolution = self.resolution.as_nanos() as u64;
        let time = profile.time_unix_nano.min(now());
        let start = self.slice_number(profile);
        if start != self.open_start {
            self.seal();
            self.open_start = start;
        }
        let milliseconds = |nanoseconds: u64| nanoseconds / 1_000_000;
        let begins = milliseconds(start * resolution);
        let ends = milliseconds(time.saturating_add(profile.duration_nano).min(now()));
        let (first, last) = self.range.unwrap_or((begins, ends));
        self.range = Some((first.min(begins), last.max(ends)));
    }

    fn labels(&mut self, attributes: &Attributes) -> Vec<(u32, u32)> {
        let mut labels = Vec::with_capacity(attributes.len());
        for attribute in attributes {
            if let Some(value) = text(&attribute.value) {
                labels.push((
                    self.label_number(&attribute.key, false),
                    self.text_number(&value),
                ));
            }
        }
        labels
    }

    fn series_of(&mut self, resource: &[(u32, u32)], own: &[AttributeIdx], model: &Model) -> u32 {
        let dictionary = &model.dictionary;
        let mut labels = resource.to_vec();
        for &index in own {
            let Some(attribute) = dictionary.attributes.get(index) else {
                continue;
            };
            if let Some(value) = text(&attribute.value) {
                let name = dictionary.strings.get(attribute.key);
                labels.push((self.label_number(name, true), self.text_number(&value)));
            }
        }
        labels.sort_unstable();
        labels.dedup_by_key(|(name, _)| *name);
        let bytes = allocated(size_of_val(&*labels));
        let (number, is_new) = self.series.insert_full(labels.into());
        if is_new {
            self.label_bytes += bytes;
        }
        number as u32
    }

    fn label_number(&mut self, attribute: &str, is_of_sample: bool) -> u32 {
        let number = self.text_number(&sanitized(attribute));
        self.attributes
            .entry(number)
            .or_insert_with(|| LabelAttribute {
                name: attribute.into(),
                is_of_sample,
            });
        number
    }

    fn text_number(&mut self, text: &str) -> u32 {
        let text = &text[..text.floor_char_boundary(MAX_LABEL_LEN)];
        match self.texts.get_index_of(text) {
            Some(number) => number as u32,
            None => {
                self.text_bytes += allocated(SHARED_HEADER + text.len());
                self.texts.insert_full(text.into()).0 as u32
            }
        }
    }

    fn node_of(&mut self, stack: StackIdx, batch: &mut Batch<'_>) -> u32 {
        if let Some(node) = batch.stacks.get(stack.row()) {
            return node;
        }
        let model = batch.model;
        let locations = model.dictionary.stacks.get(stack).iter().rev();
        let path = batch.path.iter().map(|(location, _)| location);
        let shared = locations
            .clone()
            .zip(path)
            .take_while(|(own, last)| own == last);
        let shared = shared.count();
        batch.path.truncate(shared);
        let mut parent = batch.path.last().map_or(ROOT, |(_, node)| *node);
        for &location in locations.skip(shared) {
            let node = Node {
                parent,
                location: self.location_number(location, batch),
            };
            let next = self.nodes.len() as u32;
            parent = *self.node_ids.entry(node).or_insert(next);
            if parent == next {
                self.nodes.push(node);
            }
            batch.path.push((location, parent));
        }
        batch.stacks.set(stack.row(), parent);
        parent
    }

    fn location_number(&mut self, location: LocationIdx, batch: &mut Batch<'_>) -> u32 {
        if let Some(number) = batch.locations.get(location.row()) {
            return number;
        }
        let number = self.location_of(location, batch);
        batch.locations.set(location.row(), number);
        number
    }

    fn location_of(&mut self, location: LocationIdx, batch: &mut Batch<'_>) -> u32 {
        let symbol = match batch.adder.is_named(location) {
            true => None,
            false => batch.symbols.find(&batch.model.dictionary, location),
        };
        let frames = batch.adder.add_to(&mut self.frames, location);
        let next = self.locations.len() as u32;
        match (symbol, frames) {
            (Some(symbol), &[frame]) => {
                let code = UnnamedCode { frame, symbol };
                if let Some(&number) = self.unnamed.get(&code) {
                    return number;
                }
                self.unresolved.push(next);
                self.locations.push(Location::Unnamed(code.clone().into()));
                self.unnamed.insert(code, next);
            }
            (_, frames) => {
                if let Some(&number) = self.named.get(frames) {
                    return number;
                }
                let functions = Functions::from(frames);
                self.function_bytes += functions.heap_size();
                self.locations.push(Location::Named(functions.clone()));
                self.named.insert(functions, next);
            }
        }
        next
    }
}

/// The series of a resource, by the sample attributes that are labels.
struct ResourceSeries {
    labels: Vec<(u32, u32)>,
    series: HashMap<Vec<AttributeIdx>, u32, RandomState>,
}

/// Lookup tables for the batch being added.
struct Batch<'a> {
    model: &'a Model,
    symbols: &'a DeferredSymbols,
    adder: FrameAdder<'a>,
    /// The chunk's numbers by location of the batch.
    locations: Numbers,
    /// The nodes by stack of the batch.
    stacks: Numbers,
    /// The locations of the last stack and their nodes, outermost first: the next one often begins like it.
    path: Vec<(LocationIdx, u32)>,
}

/// Unix time in nanoseconds.
fn now() -> u64 {
    let elapsed = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    u64::try_from(elapsed.as_nanos()).unwrap_or(u64::MAX)
}

/// The sample attributes that are labels.
fn own_labels(sample: &SampleRef<'_>, model: &Model, names: &[String]) -> Vec<AttributeIdx> {
    let dictionary = &model.dictionary;
    let is_label = |index: &&AttributeIdx| {
        let attribute = dictionary.attributes.get(**index);
        let key = attribute.map(|it| dictionary.strings.get(it.key));
        key.is_some_and(|key| names.iter().any(|name| name == key))
    };
    sample.attributes.iter().filter(is_label).copied().collect()
}
