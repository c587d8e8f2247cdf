//! Test helpers for this and other crates: arbitrary valid models, and their meaning independent of table layout.

mod descending;

use std::sync::Arc;

use bytes::Bytes;
use proptest::prelude::*;

use crate::{
    Attribute, AttributeIdx, Attributes, Dictionary, EntityRef, Function, Idx, KeyValue, Line,
    Link, Location, LocationIdx, LocationRef, Mapping, MappingRef, Model, OriginalPayload, Profile,
    Resource, ResourceProfiles, SampleRef, Samples, Scope, ScopeProfiles, StackIdx, Value,
    ValueType,
};

pub use self::descending::in_descending_order;

/// Small valid models with all variations: duplicate rows, unused rows, equal resources and scopes, all sample shapes.
pub fn models() -> impl Strategy<Value = Model> {
    prop::collection::vec(any::<u32>(), 0..1_500).prop_map(|tape| model_of(&tape))
}

/// A valid model from arbitrary numbers.
pub fn model_of(tape: &[u32]) -> Model {
    let mut tape = Tape(tape.iter());
    let dictionary = Arc::new(tape.dictionary());
    let resources = (0..tape.below(5)).map(|_| tape.resource_profiles(&dictionary));
    let resources = resources.collect();
    Model {
        dictionary,
        resources,
    }
}

/// One sample with everything it references, as text.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Observation {
    /// Resource, scope, and the profile's common fields.
    pub origin: Arc<str>,
    /// Attributes, link, values, timestamps.
    pub sample: String,
    /// One frame per line.
    pub stack: Arc<str>,
}

/// All samples, sorted: models with the same observations are equivalent.
///
/// Omits what may change without a change of meaning: the profile window of samples with timestamps, profile ids,
/// original payloads, and resources without samples.
pub fn observations(model: &Model) -> Vec<Observation> {
    let tables = &*model.dictionary;
    let stacks: Vec<Arc<str>> = tables
        .stacks
        .iter()
        .map(|row| stack_text(tables, row))
        .collect();
    let mut observations = Vec::new();
    for resource in &model.resources {
        for scope in &resource.scopes {
            for profile in &scope.profiles {
                let origin: Arc<str> = origin_text(tables, resource, scope, profile).into();
                observations.extend(profile.samples.iter().map(|sample| Observation {
                    origin: origin.clone(),
                    sample: sample_text(tables, profile, sample),
                    stack: stacks[sample.stack.row()].clone(),
                }));
            }
        }
    }
    observations.sort_unstable();
    observations
}

fn origin_text(
    tables: &Dictionary,
    resource: &ResourceProfiles,
    scope: &ScopeProfiles,
    profile: &Profile,
) -> String {
    let text = |row: ValueType| (tables.strings.get(row.kind), tables.strings.get(row.unit));
    format!(
        "{:?} {:?}\n{:?} {:?}\n{:?} {:?} {} {} {:?}",
        resource.resource,
        resource.schema_url,
        scope.scope,
        scope.schema_url,
        profile.sample_type.map(text),
        profile.period_type.map(text),
        profile.period,
        profile.dropped_attributes_count,
        attribute_text(tables, &profile.attributes),
    )
}

fn sample_text(tables: &Dictionary, profile: &Profile, sample: SampleRef<'_>) -> String {
    let window = (profile.time_unix_nano, profile.duration_nano);
    format!(
        "{:?} {:?} {:?} {:?} {:?}",
        attribute_text(tables, sample.attributes),
        tables.links.get(sample.link),
        sample.values,
        sample.timestamps,
        sample.timestamps.is_empty().then_some(window),
    )
}

fn stack_text(tables: &Dictionary, stack: &[LocationIdx]) -> Arc<str> {
    let frames = stack
        .iter()
        .map(|&index| location_text(tables, tables.locations.get(index)));
    frames.collect::<Vec<_>>().join("\n").into()
}

fn location_text(tables: &Dictionary, row: LocationRef<'_>) -> String {
    let mapping = tables.mappings.get(row.location.mapping);
    let lines: Vec<_> = row
        .lines
        .iter()
        .map(|line| {
            let function = tables
                .functions
                .get(line.function)
                .copied()
                .unwrap_or_default();
            let names = [function.name, function.system_name, function.filename];
            let names = names.map(|name| tables.strings.get(name));
            (names, function.start_line, line.line, line.column)
        })
        .collect();
    format!(
        "{:#x} {:?} {lines:?} {:?} {} {:?}",
        row.location.address,
        attribute_text(tables, row.attributes),
        [
            mapping.mapping.memory_start,
            mapping.mapping.memory_limit,
            mapping.mapping.file_offset
        ],
        tables.strings.get(mapping.mapping.filename),
        attribute_text(tables, mapping.attributes),
    )
}

fn attribute_text<'a>(
    tables: &'a Dictionary,
    list: &[AttributeIdx],
) -> Vec<(&'a str, &'a Value, &'a str)> {
    let rows = list
        .iter()
        .filter_map(|&index| tables.attributes.get(index));
    rows.map(|row| {
        let (key, unit) = (tables.strings.get(row.key), tables.strings.get(row.unit));
        (key, &row.value, unit)
    })
    .collect()
}

/// The numbers a model is generated from; zeroes at the end, so that a shorter tape is a smaller model.
struct Tape<'a>(std::slice::Iter<'a, u32>);

const TEXTS: [&str; 9] = [
    "main",
    "memcpy",
    "libc.so.6",
    "/src/main.rs",
    "nanoseconds",
    "cpu",
    "thread.name",
    "größe",
    "x",
];

impl Tape<'_> {
    fn next(&mut self) -> u32 {
        self.0.next().copied().unwrap_or(0)
    }

    fn below(&mut self, limit: usize) -> usize {
        self.next() as usize % limit.max(1)
    }

    fn flag(&mut self) -> bool {
        self.next() % 2 == 1
    }

    /// Small numbers, occasionally one using all bits.
    fn number(&mut self) -> u64 {
        match self.next() {
            huge if huge % 11 == 10 => u64::MAX - u64::from(huge),
            large if large % 5 == 4 => u64::from(large) << 20,
            small => u64::from(small % 300),
        }
    }

    fn text(&mut self) -> &'static str {
        TEXTS[self.below(TEXTS.len())]
    }

    fn index<T: ?Sized>(&mut self, rows: usize) -> Idx<T> {
        Idx::new(self.below(rows) as u32)
    }

    fn value(&mut self, depth: u32) -> Value {
        match self.below(if depth == 0 { 6 } else { 8 }) {
            0 => Value::Empty,
            1 => self.text().into(),
            2 => self.flag().into(),
            3 => self.number().cast_signed().into(),
            4 => Value::Double(f64::from(self.next()) / 3.0),
            5 => Value::Bytes(vec![7; self.below(3)].into()),
            6 => Value::Array((0..self.below(3)).map(|_| self.value(depth - 1)).collect()),
            _ => Value::Map(self.attributes(depth - 1).into()),
        }
    }

    fn attributes(&mut self, depth: u32) -> Attributes {
        let mut list = Attributes::new();
        for _ in 0..self.below(3) {
            let new = KeyValue {
                key: self.text().into(),
                value: self.value(depth),
            };
            if list.iter().all(|known| known.key != new.key) {
                list.push(new);
            }
        }
        list
    }

    fn dictionary(&mut self) -> Dictionary {
        let mut tables = Dictionary::default();
        for _ in 0..1 + self.below(12) {
            tables.strings.push(self.text());
        }
        let strings = tables.strings.len();
        for _ in 0..self.below(6) {
            tables.attributes.push(Attribute {
                key: Idx::new(1 + self.below(strings - 1) as u32),
                value: self.value(2),
                unit: self.index(strings),
            });
        }
        for _ in 0..self.below(6) {
            tables.functions.push(Function {
                name: Idx::new(1 + self.below(strings - 1) as u32),
                system_name: self.index(strings),
                filename: self.index(strings),
                start_line: self.below(50) as i64,
            });
        }
        for _ in 0..self.below(4) {
            tables.links.push(Link {
                trace_id: [1 + self.below(2) as u8; 16],
                span_id: [self.below(2) as u8; 8],
            });
        }
        for _ in 0..self.below(4) {
            let memory_start = self.number() / 2;
            let attributes = self.attribute_list(&tables);
            tables.mappings.push(MappingRef {
                mapping: Mapping {
                    memory_start,
                    memory_limit: memory_start + 1 + self.number() / 4,
                    file_offset: self.number(),
                    filename: self.index(strings),
                },
                attributes: &attributes,
            });
        }
        for _ in 0..self.below(7) {
            let lines: Vec<Line> = (0..self.below(3)).map(|_| self.line(&tables)).collect();
            let attributes = self.attribute_list(&tables);
            tables.locations.push(LocationRef {
                location: Location {
                    mapping: self.index(tables.mappings.rows().len()),
                    address: self.number(),
                },
                lines: &lines,
                attributes: &attributes,
            });
        }
        for _ in 0..self.below(6) {
            let locations = tables.locations.rows().len();
            let stack: Vec<_> = (0..self.below(6)).map(|_| self.index(locations)).collect();
            tables.stacks.push(&stack);
        }
        tables
    }

    fn line(&mut self, tables: &Dictionary) -> Line {
        Line {
            function: self.index(tables.functions.rows().len()),
            line: self.below(1_000) as i64,
            column: self.below(100) as i64,
        }
    }

    /// Attributes with distinct keys.
    fn attribute_list(&mut self, tables: &Dictionary) -> Vec<AttributeIdx> {
        let mut list: Vec<AttributeIdx> = Vec::new();
        for _ in 0..self.below(4) {
            let new = self.index(tables.attributes.rows().len());
            let key = |index: AttributeIdx| {
                let row = tables.attributes.get(index);
                row.map(|row| tables.strings.get(row.key))
            };
            if new.is_set() && list.iter().all(|&known| key(known) != key(new)) {
                list.push(new);
            }
        }
        list
    }

    fn resource_profiles(&mut self, tables: &Dictionary) -> ResourceProfiles {
        ResourceProfiles {
            resource: match self.below(3) {
                0 => None,
                1 => Some(Arc::new(Resource {
                    attributes: vec![KeyValue::new("service.name", "x")],
                    ..Resource::default()
                })),
                _ => Some(Arc::new(self.resource())),
            },
            scopes: (0..self.below(3))
                .map(|_| self.scope_profiles(tables))
                .collect(),
            schema_url: ["", "", "https://example.com/1"][self.below(3)].into(),
        }
    }

    fn resource(&mut self) -> Resource {
        let entities = (0..self.below(2)).map(|_| EntityRef {
            schema_url: self.text().into(),
            kind: self.text().into(),
            id_keys: vec![self.text().into()],
            description_keys: (0..self.below(3)).map(|_| self.text().into()).collect(),
        });
        Resource {
            entity_refs: entities.collect(),
            attributes: self.attributes(2),
            dropped_attributes_count: self.below(2) as u32,
        }
    }

    fn scope_profiles(&mut self, tables: &Dictionary) -> ScopeProfiles {
        ScopeProfiles {
            scope: (self.below(3) == 2).then(|| {
                Arc::new(Scope {
                    name: self.text().into(),
                    version: ["", "1"][self.below(2)].into(),
                    attributes: self.attributes(1),
                    dropped_attributes_count: self.below(2) as u32,
                })
            }),
            profiles: (0..self.below(6))
                .map(|_| Arc::new(self.profile(tables)))
                .collect(),
            schema_url: ["", "", "https://example.com/2"][self.below(3)].into(),
        }
    }

    fn profile(&mut self, tables: &Dictionary) -> Profile {
        let time_unix_nano = 1_000 * (1 + self.below(2) as u64);
        let duration_nano = 500 * self.below(4) as u64;
        let mut samples = Samples::default();
        let shape = self.below(5);
        for _ in 0..self.below(6) {
            // Mixed sample shapes are valid, if rare.
            let shape = if shape == 4 { self.below(4) } else { shape };
            let attributes = self.attribute_list(tables);
            let (values, timestamps) = self.data(shape, time_unix_nano, duration_nano);
            samples.push(SampleRef {
                stack: self.index::<_>(tables.stacks.len()) as StackIdx,
                link: self.index(tables.links.rows().len()),
                attributes: &attributes,
                values: &values,
                timestamps: &timestamps,
            });
        }
        Profile {
            sample_type: (self.below(3) == 2).then(|| self.value_type(tables)),
            samples,
            time_unix_nano,
            duration_nano,
            period_type: (self.below(3) == 2).then(|| self.value_type(tables)),
            period: if self.below(4) == 3 { 20 } else { 0 },
            profile_id: (self.below(9) == 8).then(|| [self.next() as u8 | 1; 16]),
            dropped_attributes_count: u32::from(self.below(6) == 5),
            original_payload: (self.below(9) == 8).then(|| OriginalPayload {
                format: "pprof".into(),
                payload: Bytes::from_static(b"payload"),
            }),
            attributes: if self.below(4) == 3 {
                self.attribute_list(tables)
            } else {
                Vec::new()
            },
        }
    }

    /// Values and timestamps of one sample.
    fn data(&mut self, shape: usize, start: u64, duration: u64) -> (Vec<i64>, Vec<u64>) {
        let count = 1 + self.below(3);
        let timestamps = (0..count).map(|_| start + self.below(duration as usize + 1) as u64);
        let timestamps: Vec<u64> = timestamps.collect();
        let mut values = || self.number().cast_signed();
        match shape {
            0 | 3 => (Vec::new(), timestamps),
            1 => (timestamps.iter().map(|_| values()).collect(), timestamps),
            _ => (vec![values()], Vec::new()),
        }
    }

    fn value_type(&mut self, tables: &Dictionary) -> ValueType {
        ValueType {
            kind: self.index(tables.strings.len().min(3)),
            unit: self.index(tables.strings.len().min(3)),
        }
    }
}
