//! Encodes a request.

use std::sync::Arc;

use bytes::Bytes;
use foldhash::fast::RandomState;
use indexmap::IndexMap;
use profcol_pprof::{AddProfilesError, LabelSelection, ProfileSet};
use profcol_profile::proto::Writer;
use profcol_profile::{
    AttributeRef, Function, Idx, Interner, Line, Location, LocationIdx, LocationRef, Mapping,
    MappingRef, Model, Profile, ResourceProfiles, SampleRef, Samples, ScopeProfiles, StackIdx,
    Value, ValueType,
};

use super::{NAME, field};
use crate::frames::{Frames, GNU_BUILD_ID};
use crate::runs::Texts;
use crate::table::Table;

/// The labels of a row: a key for each column, then the key of the name.
type Labels = Vec<Option<u32>>;

/// The common part of the rows of a file: keys of the types, period, duration and time.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Kind {
    types: [Option<u32>; 4],
    period: i64,
    duration: i64,
    time: i64,
}

/// The rows by series and file.
type Grouped = IndexMap<Labels, IndexMap<Kind, Vec<usize>, RandomState>, RandomState>;

/// A request with all rows of a table.
pub fn encode(table: &Table, frames: &Frames<'_>) -> Result<Bytes, AddProfilesError> {
    let grouped = group(table);
    let Files {
        model,
        counts,
        is_normalized,
    } = files(table, frames, &grouped);
    let mut request = Writer::with_capacity(1 << 16);
    let mut position = 0;
    for ((labels, _), count) in grouped.iter().zip(counts) {
        let sets =
            (position..position + count).map(|profile| ProfileSet::single(&model, 0, 0, profile));
        position += count;
        let files = sets
            .flatten()
            .map(|set| profcol_pprof::write([set], LabelSelection::default()));
        let files: Vec<Vec<u8>> = files.collect::<Result<_, _>>()?;
        let expected = files.iter().map(Vec::len).sum();
        request.nested(field::SERIES, expected, |series| {
            series.nested(field::SERIES_LABELS, 1 << 7, |set| {
                push_labels(set, table, labels)
            });
            for file in &files {
                series.nested(field::SERIES_SAMPLES, file.len(), |sample| {
                    sample.bytes(field::RAW_PROFILE, file);
                });
            }
        });
    }
    request.uint(field::NORMALIZED, is_normalized.into());
    Ok(request.into_vec().into())
}

fn push_labels(set: &mut Writer, table: &Table, labels: &Labels) {
    let names = table
        .labels
        .iter()
        .map(|(name, texts)| (name.as_str(), texts));
    let names = names.filter(|(name, _)| *name != NAME);
    let texts = names
        .zip(labels)
        .filter_map(|((name, texts), key)| Some((name, texts.text_of(*key)?)));
    let name = labels.last().and_then(|key| table.producer.text_of(*key));
    for (name, text) in texts.chain(name.map(|name| (NAME, name))) {
        set.nested(field::LABEL, name.len() + text.len() + 4, |label| {
            label.bytes(field::LABEL_NAME, name.as_bytes());
            label.bytes(field::LABEL_VALUE, text.as_bytes());
        });
    }
}

fn group(table: &Table) -> Grouped {
    let names = table.labels.iter().filter(|(name, _)| name != NAME);
    let mut labels: Vec<Vec<Option<u32>>> = names.map(|(_, texts)| texts.keys()).collect();
    labels.push(table.producer.keys());
    let types = [
        &table.sample_type,
        &table.sample_unit,
        &table.period_type,
        &table.period_unit,
    ]
    .map(Texts::keys);
    let period = table.period.expanded();
    let duration = table.duration.expanded();
    let time = table.timestamp.expanded();
    let mut grouped = Grouped::default();
    for row in 0..table.rows() {
        let of_row = labels.iter().map(|keys| keys[row]).collect();
        let kind = Kind {
            types: types.each_ref().map(|keys| keys[row]),
            period: period[row],
            duration: duration[row],
            time: time[row],
        };
        let series = grouped.entry(of_row).or_default();
        series.entry(kind).or_default().push(row);
    }
    grouped
}

/// The files of a request.
struct Files {
    /// The only scope has one profile per file.
    model: Model,
    /// The number of files of each series.
    counts: Vec<usize>,
    /// Whether all addresses are relative to their files.
    is_normalized: bool,
}

fn files(table: &Table, frames: &Frames<'_>, grouped: &Grouped) -> Files {
    let mut encoder = ProfileEncoder {
        frames,
        rows: Interner::new(),
        stacks: vec![None; frames.model().dictionary.stacks.len()],
        is_normalized: true,
    };
    let mut profiles = Vec::new();
    for (kind, rows) in grouped.values().flatten() {
        profiles.push(Arc::new(encoder.profile(table, kind, rows)));
    }
    let resource = ResourceProfiles {
        scopes: vec![ScopeProfiles {
            profiles,
            ..ScopeProfiles::default()
        }],
        ..ResourceProfiles::default()
    };
    Files {
        is_normalized: encoder.is_normalized,
        model: Model {
            dictionary: Arc::new(encoder.rows.finish()),
            resources: vec![resource],
        },
        counts: grouped.values().map(IndexMap::len).collect(),
    }
}

/// Encodes the same stack information as the other layouts.
struct ProfileEncoder<'a> {
    frames: &'a Frames<'a>,
    rows: Interner,
    stacks: Vec<Option<StackIdx>>,
    is_normalized: bool,
}

impl ProfileEncoder<'_> {
    fn profile(&mut self, table: &Table, kind: &Kind, rows: &[usize]) -> Profile {
        let mut samples = Samples::default();
        for &row in rows {
            samples.push(SampleRef {
                stack: self.stack(table.stacks[row]),
                values: &[table.values[row]],
                ..SampleRef::default()
            });
        }
        let [sample_type, sample_unit, period_type, period_unit] = kind.types;
        let mut text =
            |texts: &Texts, key| self.rows.string(texts.text_of(key).unwrap_or_default());
        Profile {
            sample_type: Some(ValueType {
                kind: text(&table.sample_type, sample_type),
                unit: text(&table.sample_unit, sample_unit),
            }),
            period_type: Some(ValueType {
                kind: text(&table.period_type, period_type),
                unit: text(&table.period_unit, period_unit),
            }),
            period: kind.period,
            time_unix_nano: kind.time.try_into().unwrap_or(0),
            duration_nano: kind.duration.try_into().unwrap_or(0),
            samples,
            ..Profile::default()
        }
    }

    fn stack(&mut self, stack: StackIdx) -> StackIdx {
        if let Some(Some(index)) = self.stacks.get(stack.row()) {
            return *index;
        }
        let locations = self.frames.model().dictionary.stacks.get(stack).iter();
        let locations: Vec<_> = locations.map(|&location| self.location(location)).collect();
        let index = self.rows.stack(&locations);
        if let Some(slot) = self.stacks.get_mut(stack.row()) {
            *slot = Some(index);
        }
        index
    }

    fn location(&mut self, location: LocationIdx) -> LocationIdx {
        let frame = self.frames.frame(location);
        let memory = frame.memory;
        self.is_normalized &= memory.memory_start == 0 && memory.file_offset == 0;
        let rows = &mut self.rows;
        let build_id = (!frame.build_id.is_empty()).then(|| {
            let key = rows.string(GNU_BUILD_ID);
            rows.attribute(AttributeRef {
                key,
                value: &Value::from(frame.build_id),
                unit: Idx::UNSET,
            })
        });
        let filename = rows.string(frame.file);
        let mapping = rows.mapping(MappingRef {
            mapping: Mapping { filename, ..memory },
            attributes: build_id.as_slice(),
        });
        let lines: Vec<Line> = self
            .frames
            .lines(&frame)
            .map(|line| {
                let function = Function {
                    name: rows.string(line.name),
                    system_name: rows.string(line.system_name),
                    filename: rows.string(line.file),
                    start_line: line.start_line,
                };
                Line {
                    function: rows.function(function),
                    line: line.line,
                    column: line.column,
                }
            })
            .collect();
        rows.location(LocationRef {
            location: Location {
                mapping,
                address: frame.address,
            },
            lines: &lines,
            attributes: &[],
        })
    }
}
