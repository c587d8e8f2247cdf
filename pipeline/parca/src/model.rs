//! From the rows of a record to the model.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;

use profcol_labels::{Place, attribute_of};
use profcol_profile::{
    AttributeIdx, AttributeRef, Function, Idx, Interner, KeyValue, Line, Location, LocationIdx,
    LocationRef, Mapping, MappingRef, Model, Profile, Resource, ResourceProfiles, SampleRef,
    Samples as SampleColumns, Scope, ScopeProfiles, StackIdx, Value, ValueType,
};

use crate::columns::Keyed;
use crate::frames::GNU_BUILD_ID;
use crate::read::{Refused, Samples, StackRefs};
use crate::v1::Stacks;

/// A batch of the rows; of the older layout `stacks` are those that were told.
///
/// Labels become attributes of resources, but those of which Parca's agent has one for each sample.
pub fn to_model(samples: &Samples, stacks: &Stacks) -> Result<Model, Refused> {
    let (of_sample, of_resource): (Vec<_>, Vec<_>) = samples
        .labels
        .iter()
        .partition(|(name, _)| sample_key(name).is_some());
    let mut grouping = Grouping {
        samples,
        of_sample,
        of_resource,
        rows: Interner::new(),
        resources: Vec::new(),
        known: HashMap::new(),
    };
    // A stack is looked up once.
    let mut interned: HashMap<u32, StackIdx> = HashMap::new();
    for row in 0..samples.rows() {
        let rows = &mut grouping.rows;
        let stack = match &samples.stacks {
            StackRefs::Inline(inline) => inline.intern(rows, row),
            StackRefs::Ids(ids) => match (interned.get(&ids.key(row)), ids.bytes(row)) {
                (_, None) => Idx::UNSET,
                (Some(&known), _) => known,
                (None, Some(id)) => {
                    let stack = stacks.intern(rows, id);
                    let stack = stack.ok_or_else(|| Refused::NoStack { id: hex(id) })?;
                    interned.insert(ids.key(row), stack);
                    stack
                }
            },
        };
        grouping.add(row, stack);
    }
    Ok(grouping.finish())
}

fn hex(id: &[u8]) -> String {
    id.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The attribute of a sample that a label stands for.
pub fn sample_key(label: &str) -> Option<&'static str> {
    attribute_of(label, Place::Sample)
}

/// Numbers are numbers again.
pub fn sample_value(key: &str, text: &str) -> Value {
    match text.parse::<i64>() {
        Ok(number) if key != "thread.name" => Value::Int(number),
        _ => Value::from(text),
    }
}

/// The attribute of a resource that a label stands for.
pub fn resource_key(label: &str) -> &str {
    attribute_of(label, Place::Resource).unwrap_or(label)
}

struct Grouping<'a> {
    samples: &'a Samples,
    of_sample: Vec<&'a (String, Keyed)>,
    of_resource: Vec<&'a (String, Keyed)>,
    rows: Interner,
    resources: Vec<Group>,
    /// By the keys of the labels.
    known: HashMap<Vec<u32>, usize>,
}

/// The rows of one resource.
struct Group {
    resource: Arc<Resource>,
    profiles: Vec<Building>,
}

/// What the rows of one profile have in common.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Kind {
    producer: u32,
    texts: [u32; 4],
    period: i64,
    duration: i64,
}

struct Building {
    kind: Kind,
    /// A row of it.
    row: usize,
    order: Vec<Observation>,
    observed: HashMap<Observation, Observed>,
}

/// What was observed.
type Observation = (StackIdx, Vec<AttributeIdx>);

/// The values, and the time of each.
type Observed = (Vec<i64>, Vec<u64>);

impl<'a> Grouping<'a> {
    fn add(&mut self, row: usize, stack: StackIdx) {
        let samples = self.samples;
        let attributes = self.sample_attributes(row);
        let kind = Kind {
            producer: samples.producer.key(row),
            texts: [
                samples.sample_type.key(row),
                samples.sample_unit.key(row),
                samples.period_type.key(row),
                samples.period_unit.key(row),
            ],
            period: samples.period.get(row).copied().unwrap_or_default(),
            duration: samples.duration.get(row).copied().unwrap_or_default(),
        };
        let group = self.group(row);
        let profiles = &mut self.resources[group].profiles;
        let place = match profiles.iter().position(|profile| profile.kind == kind) {
            Some(place) => place,
            None => {
                profiles.push(Building {
                    kind,
                    row,
                    order: Vec::new(),
                    observed: HashMap::new(),
                });
                profiles.len() - 1
            }
        };
        let profile = &mut profiles[place];
        let key = (stack, attributes);
        let (values, times) = profile.observed.entry(key).or_insert_with_key(|key| {
            profile.order.push(key.clone());
            Default::default()
        });
        values.push(samples.values.get(row).copied().unwrap_or_default());
        let time = samples.timestamp.get(row).copied().unwrap_or_default();
        times.push(time.try_into().unwrap_or(0));
    }

    fn group(&mut self, row: usize) -> usize {
        let keys: Vec<u32> = self
            .of_resource
            .iter()
            .map(|(_, texts)| texts.key(row))
            .collect();
        if let Some(&known) = self.known.get(&keys) {
            return known;
        }
        let mut attributes = Vec::new();
        for (name, texts) in &self.of_resource {
            let text = texts.text(row);
            if !text.is_empty() {
                attributes.push(KeyValue::new(resource_key(name), &*text));
            }
        }
        let group = self.resources.len();
        self.resources.push(Group {
            resource: Arc::new(Resource {
                attributes,
                ..Resource::default()
            }),
            profiles: Vec::new(),
        });
        self.known.insert(keys, group);
        group
    }

    fn sample_attributes(&mut self, row: usize) -> Vec<AttributeIdx> {
        let mut attributes = Vec::with_capacity(self.of_sample.len());
        for (name, texts) in &self.of_sample {
            let text = texts.text(row);
            if let (Some(key), false) = (sample_key(name), text.is_empty()) {
                let value = sample_value(key, &text);
                attributes.push(attribute(&mut self.rows, key, &value));
            }
        }
        attributes
    }

    fn finish(mut self) -> Model {
        let samples = self.samples;
        let mut resources = Vec::with_capacity(self.resources.len());
        for group in std::mem::take(&mut self.resources) {
            let mut scopes: Vec<ScopeProfiles> = Vec::new();
            for building in group.profiles {
                let name = samples.producer.text(building.row).into_owned();
                let profile = Arc::new(self.profile(building));
                let of_producer = |scope: &ScopeProfiles| {
                    scope
                        .scope
                        .as_deref()
                        .is_some_and(|scope| *scope.name == *name)
                };
                match scopes.iter().position(of_producer) {
                    Some(place) => scopes[place].profiles.push(profile),
                    None => scopes.push(ScopeProfiles {
                        scope: Some(Arc::new(Scope {
                            name: name.as_str().into(),
                            ..Scope::default()
                        })),
                        profiles: vec![profile],
                        ..ScopeProfiles::default()
                    }),
                }
            }
            resources.push(ResourceProfiles {
                resource: Some(group.resource),
                scopes,
                ..ResourceProfiles::default()
            });
        }
        Model {
            dictionary: Arc::new(self.rows.finish()),
            resources,
        }
    }

    fn profile(&mut self, mut building: Building) -> Profile {
        let row = building.row;
        let samples = self.samples;
        let mut columns = SampleColumns::default();
        let (mut first, mut last) = (u64::MAX, 0);
        for key in &building.order {
            let Some((values, times)) = building.observed.remove(key) else {
                continue;
            };
            let (stack, attributes) = key;
            first = times.iter().copied().fold(first, u64::min);
            last = times.iter().copied().fold(last, u64::max);
            columns.push(SampleRef {
                stack: *stack,
                attributes,
                values: &values,
                timestamps: &times,
                ..SampleRef::default()
            });
        }
        let first = first.min(last);
        // Agents say a second whatever the interval is. All times are within the profile's.
        let duration = match u64::try_from(building.kind.duration) {
            Ok(0) | Err(_) => 0,
            Ok(duration) => duration.max(last - first + 1),
        };
        let mut value_type = |kind: &Keyed, unit: &Keyed| ValueType {
            kind: self.rows.string(&kind.text(row)),
            unit: self.rows.string(&unit.text(row)),
        };
        Profile {
            sample_type: Some(value_type(&samples.sample_type, &samples.sample_unit)),
            period_type: Some(value_type(&samples.period_type, &samples.period_unit)),
            samples: columns,
            time_unix_nano: first,
            duration_nano: duration,
            period: building.kind.period,
            ..Profile::default()
        }
    }
}

/// A frame as a record has it.
pub struct FrameRow<'a> {
    pub kind: Cow<'a, str>,
    pub address: u64,
    pub start: u64,
    pub limit: u64,
    pub offset: u64,
    pub file: Cow<'a, str>,
    pub build_id: Cow<'a, str>,
}

/// A line as a record has it.
pub struct LineRow<'a> {
    pub name: Cow<'a, str>,
    pub system_name: Cow<'a, str>,
    pub file: Cow<'a, str>,
    pub start_line: i64,
    pub line: i64,
    pub column: i64,
}

impl FrameRow<'_> {
    /// Its row in a dictionary.
    pub fn intern<'a>(
        &self,
        rows: &mut Interner,
        lines: impl Iterator<Item = LineRow<'a>>,
    ) -> LocationIdx {
        let lines: Vec<Line> = lines.map(|line| line.intern(rows)).collect();
        let id = (!self.build_id.is_empty()).then(|| {
            let key = build_id_key(&self.build_id);
            attribute(rows, key, &Value::from(&*self.build_id))
        });
        let mapping = Mapping {
            memory_start: self.start,
            memory_limit: self.limit,
            file_offset: self.offset,
            filename: rows.string(&self.file),
        };
        let mapping = rows.mapping(MappingRef {
            mapping,
            attributes: id.as_slice(),
        });
        let kind = (!self.kind.is_empty())
            .then(|| attribute(rows, "profile.frame.type", &Value::from(&*self.kind)));
        rows.location(LocationRef {
            location: Location {
                mapping,
                address: self.address,
            },
            lines: &lines,
            attributes: kind.as_slice(),
        })
    }
}

impl LineRow<'_> {
    fn intern(&self, rows: &mut Interner) -> Line {
        let function = Function {
            name: rows.string(&self.name),
            system_name: rows.string(&self.system_name),
            filename: rows.string(&self.file),
            start_line: self.start_line,
        };
        Line {
            function: rows.function(function),
            line: self.line,
            column: self.column,
        }
    }
}

/// Parca does not say of which kind an id is. A hash of the file has 32 digits.
fn build_id_key(id: &str) -> &'static str {
    let is_hex = id.bytes().all(|byte| byte.is_ascii_hexdigit());
    match id.len() {
        32 if is_hex => "process.executable.build_id.htlhash",
        _ if is_hex => GNU_BUILD_ID,
        _ => "process.executable.build_id.go",
    }
}

fn attribute(rows: &mut Interner, key: &str, value: &Value) -> AttributeIdx {
    let key = rows.string(key);
    rows.attribute(AttributeRef {
        key,
        value,
        unit: Idx::UNSET,
    })
}
