//! Converts the rows of a record to the model.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use profcol_labels::{LabelSource, attribute_of};
use profcol_profile::{
    AttributeIdx, Idx, Interner, KeyValue, Model, Profile, Resource, ResourceProfiles, SampleRef,
    Samples as SampleColumns, Scope, ScopeProfiles, StackIdx, Value, ValueType, hex,
};

use crate::columns::Keyed;
use crate::error::RecordError;
use crate::frame_row::attribute;
use crate::samples::{Samples, StackRefs};
use crate::v1::Stacks;
use crate::v2::Interning;

/// Builds a batch from the rows; `stacks` are those received separately in the older layout.
/// Labels become resource attributes, except those that Parca Agent sets per sample.
pub fn to_model(samples: &Samples, stacks: &Stacks) -> Result<Model, RecordError> {
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
        groups: HashMap::new(),
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

/// Looks up the stacks of rows, interning each once.
enum Lookup<'a> {
    Inline(Interning<'a>),
    Ids {
        ids: &'a Keyed,
        stacks: &'a Stacks,
        of_keys: HashMap<u32, StackIdx>,
        /// Several keys may have the same id.
        of_ids: HashMap<&'a [u8], StackIdx>,
    },
}

impl Lookup<'_> {
    fn stack(&mut self, rows: &mut Interner, row: usize) -> Result<StackIdx, RecordError> {
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
        if let Some(&stack) = of_keys.get(&key) {
            return Ok(stack);
        }
        let stack = of_ids.get(id).copied();
        let stack = stack.or_else(|| stacks.intern(rows, id));
        let stack = stack.ok_or_else(|| RecordError::MissingStack { id: hex(id) })?;
        of_ids.insert(id, stack);
        of_keys.insert(key, stack);
        Ok(stack)
    }
}

/// The sample attribute of a label.
pub fn sample_key(label: &str) -> Option<&'static str> {
    attribute_of(label, LabelSource::Sample)
}

/// Parses numbers.
pub fn sample_value(key: &str, text: &str) -> Value {
    match text.parse::<i64>() {
        Ok(number) if key != "thread.name" => Value::Int(number),
        _ => Value::from(text),
    }
}

/// The resource attribute of a label.
pub fn resource_key(label: &str) -> &str {
    attribute_of(label, LabelSource::Resource).unwrap_or(label)
}

struct Grouping<'a> {
    samples: &'a Samples,
    of_sample: Vec<&'a (String, Keyed)>,
    of_resource: Vec<&'a (String, Keyed)>,
    rows: Interner,
    resources: Vec<Group>,
    /// By the keys of the labels.
    groups: HashMap<Vec<u32>, usize>,
    label_bytes: usize,
}

/// A record stores a long label once, but each resource with the label stores it again.
const MAX_LABEL_BYTES: usize = 64 << 20;

/// The rows of one resource.
struct Group {
    resource: Arc<Resource>,
    profiles: Vec<Building>,
    indices: HashMap<Kind, usize>,
}

/// The common part of the rows of a profile.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Kind {
    producer: u32,
    texts: [u32; 4],
    period: i64,
    duration: i64,
}

struct Building {
    kind: Kind,
    /// One of its rows.
    row: usize,
    order: Vec<Observation>,
    observed: HashMap<Observation, Observed>,
}

/// A unique stack and attribute set.
type Observation = (StackIdx, Vec<AttributeIdx>);

/// The values and their timestamps.
type Observed = (Vec<i64>, Vec<u64>);

impl<'a> Grouping<'a> {
    fn add(&mut self, row: usize, stack: StackIdx) -> Result<(), RecordError> {
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
            profiles, indices, ..
        } = &mut self.resources[group];
        let index = *indices.entry(kind).or_insert_with(|| {
            profiles.push(Building {
                kind,
                row,
                order: Vec::new(),
                observed: HashMap::new(),
            });
            profiles.len() - 1
        });
        let profile = &mut profiles[index];
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

    fn group(&mut self, row: usize) -> Result<usize, RecordError> {
        let keys: Vec<u32> = self
            .of_resource
            .iter()
            .map(|(_, texts)| texts.key(row))
            .collect();
        if let Some(&group) = self.groups.get(&keys) {
            return Ok(group);
        }
        let mut attributes = Vec::new();
        // Several columns may share a name or map to the same attribute: the first wins.
        let mut keys_seen = HashSet::new();
        for (name, texts) in &self.of_resource {
            let text = texts.text(row);
            if !text.is_empty() && keys_seen.insert(resource_key(name)) {
                self.label_bytes = self.label_bytes.saturating_add(text.len());
                attributes.push(KeyValue::new(resource_key(name), &*text));
            }
        }
        if self.label_bytes > MAX_LABEL_BYTES {
            let reason = format!("the labels have more than {MAX_LABEL_BYTES} bytes");
            return Err(RecordError::Layout(reason));
        }
        let group = self.resources.len();
        self.resources.push(Group {
            resource: Arc::new(Resource {
                attributes,
                ..Resource::default()
            }),
            profiles: Vec::new(),
            indices: HashMap::new(),
        });
        self.groups.insert(keys, group);
        Ok(group)
    }

    fn sample_attributes(&mut self, row: usize) -> Vec<AttributeIdx> {
        let mut attributes = Vec::with_capacity(self.of_sample.len());
        // There are only a few keys, so a linear search suffices.
        let mut keys_seen = Vec::new();
        for (name, texts) in &self.of_sample {
            let text = texts.text(row);
            if let (Some(key), false) = (sample_key(name), text.is_empty())
                && !keys_seen.contains(&key)
            {
                keys_seen.push(key);
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
            let mut indices: HashMap<String, usize> = HashMap::new();
            for building in group.profiles {
                let name = samples.producer.text(building.row).into_owned();
                let profile = Arc::new(self.profile(building));
                let index = match indices.get(&name) {
                    Some(&index) => index,
                    None => {
                        scopes.push(ScopeProfiles {
                            scope: Some(Arc::new(Scope {
                                name: name.as_str().into(),
                                ..Scope::default()
                            })),
                            ..ScopeProfiles::default()
                        });
                        indices.insert(name, scopes.len() - 1);
                        scopes.len() - 1
                    }
                };
                scopes[index].profiles.push(profile);
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
        // Agents always send one second, whatever the interval. The duration must cover all timestamps.
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
