//! From the rows of a record to the model.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
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
use crate::v2::Interning;

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
        label_bytes: 0,
    };
    let mut lookup = match &samples.stacks {
        StackRefs::Inline(inline) => Lookup::Inline(inline.interning()),
        StackRefs::Ids(ids) => Lookup::Ids {
            ids,
            stacks,
            of_keys: HashMap::new(),
            of_ids: HashMap::new(),
        },
    };
    for row in 0..samples.rows() {
        let stack = lookup.stack(&mut grouping.rows, row)?;
        grouping.add(row, stack)?;
    }
    Ok(grouping.finish())
}

/// Finds the stacks of rows, each once.
enum Lookup<'a> {
    Inline(Interning<'a>),
    Ids {
        ids: &'a Keyed,
        stacks: &'a Stacks,
        of_keys: HashMap<u32, StackIdx>,
        /// An id may stand under several keys.
        of_ids: HashMap<&'a [u8], StackIdx>,
    },
}

impl Lookup<'_> {
    fn stack(&mut self, rows: &mut Interner, row: usize) -> Result<StackIdx, Refused> {
        let (ids, stacks, of_keys, of_ids) = match self {
            Self::Inline(inline) => return inline.stack(rows, row),
            Self::Ids {
                ids,
                stacks,
                of_keys,
                of_ids,
            } => (ids, stacks, of_keys, of_ids),
        };
        let (key, Some(id)) = (ids.key(row), ids.bytes(row)) else {
            return Ok(Idx::UNSET);
        };
        if let Some(&known) = of_keys.get(&key) {
            return Ok(known);
        }
        let known = of_ids.get(id).copied();
        let stack = known.or_else(|| stacks.intern(rows, id));
        let stack = stack.ok_or_else(|| Refused::NoStack { id: hex(id) })?;
        of_ids.insert(id, stack);
        of_keys.insert(key, stack);
        Ok(stack)
    }
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
    label_bytes: usize,
}

/// A long label stands in a record once, and in each resource that has it.
const MAX_LABEL_BYTES: usize = 64 << 20;

/// The rows of one resource.
struct Group {
    resource: Arc<Resource>,
    profiles: Vec<Building>,
    places: HashMap<Kind, usize>,
}

/// What the rows of one profile have in common.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
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
    fn add(&mut self, row: usize, stack: StackIdx) -> Result<(), Refused> {
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
        let group = self.group(row)?;
        let Group {
            profiles, places, ..
        } = &mut self.resources[group];
        let place = *places.entry(kind).or_insert_with(|| {
            profiles.push(Building {
                kind,
                row,
                order: Vec::new(),
                observed: HashMap::new(),
            });
            profiles.len() - 1
        });
        let profile = &mut profiles[place];
        let key = (stack, attributes);
        let (values, times) = profile.observed.entry(key).or_insert_with_key(|key| {
            profile.order.push(key.clone());
            Default::default()
        });
        values.push(samples.values.get(row).copied().unwrap_or_default());
        let time = samples.timestamp.get(row).copied().unwrap_or_default();
        times.push(time.try_into().unwrap_or(0));
        Ok(())
    }

    fn group(&mut self, row: usize) -> Result<usize, Refused> {
        let keys: Vec<u32> = self
            .of_resource
            .iter()
            .map(|(_, texts)| texts.key(row))
            .collect();
        if let Some(&known) = self.known.get(&keys) {
            return Ok(known);
        }
        let mut attributes = Vec::new();
        // Two columns may have the same name, or names of one attribute: the first says it.
        let mut said = HashSet::new();
        for (name, texts) in &self.of_resource {
            let text = texts.text(row);
            if !text.is_empty() && said.insert(resource_key(name)) {
                self.label_bytes = self.label_bytes.saturating_add(text.len());
                attributes.push(KeyValue::new(resource_key(name), &*text));
            }
        }
        if self.label_bytes > MAX_LABEL_BYTES {
            let reason = format!("the labels have more than {MAX_LABEL_BYTES} bytes");
            return Err(Refused::Shape(reason));
        }
        let group = self.resources.len();
        self.resources.push(Group {
            resource: Arc::new(Resource {
                attributes,
                ..Resource::default()
            }),
            profiles: Vec::new(),
            places: HashMap::new(),
        });
        self.known.insert(keys, group);
        Ok(group)
    }

    fn sample_attributes(&mut self, row: usize) -> Vec<AttributeIdx> {
        let mut attributes = Vec::with_capacity(self.of_sample.len());
        // There are few keys, so that this stays short.
        let mut said = Vec::new();
        for (name, texts) in &self.of_sample {
            let text = texts.text(row);
            if let (Some(key), false) = (sample_key(name), text.is_empty())
                && !said.contains(&key)
            {
                said.push(key);
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
            let mut places: HashMap<String, usize> = HashMap::new();
            for building in group.profiles {
                let name = samples.producer.text(building.row).into_owned();
                let profile = Arc::new(self.profile(building));
                let place = match places.get(&name) {
                    Some(&place) => place,
                    None => {
                        scopes.push(ScopeProfiles {
                            scope: Some(Arc::new(Scope {
                                name: name.as_str().into(),
                                ..Scope::default()
                            })),
                            ..ScopeProfiles::default()
                        });
                        places.insert(name, scopes.len() - 1);
                        scopes.len() - 1
                    }
                };
                scopes[place].profiles.push(profile);
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
        // What is no range says nothing, and OTLP refuses it.
        let is_range = self.start < self.limit;
        let mapping = Mapping {
            memory_start: if is_range { self.start } else { 0 },
            memory_limit: if is_range { self.limit } else { 0 },
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
