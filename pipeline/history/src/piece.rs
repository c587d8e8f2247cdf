//! Some slices of a chunk as a record on disk: an OTLP request, like the records of a sending queue.
//!
//! It can be read without the rest of its chunk. Labels are attributes again, and counted samples are counts.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use profcol_component::{Metadata, Source};
use profcol_flamegraph::{SampleType, add_location};
use profcol_net::Encoding;
use profcol_net::compress::{Level, compress, decompress};
use profcol_profile::{
    AttributeIdx, AttributeRef, Interner, KeyValue, LocationIdx, Model, Profile, Profiles,
    Resource, ResourceProfiles, SampleRef, Samples, ScopeProfiles, StackIdx, StringIdx, Validation,
    ValueType,
};
use profcol_storage::{BrowsedRecord, Counts, Head};

use crate::chunk::{Chunk, Row};

/// The time and the types of a record, in milliseconds of Unix time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Coverage {
    pub from: u64,
    pub until: u64,
    pub types: Vec<SampleType>,
}

/// A record to write.
pub(super) struct Piece {
    pub coverage: Coverage,
    pub head: Vec<u8>,
    pub body: Bytes,
    pub counts: Counts,
}

const ENCODING: Encoding = Encoding::Zstd;
const FROM: &str = "profcol.history.from";
const UNTIL: &str = "profcol.history.until";
const TYPE: &str = "profcol.history.type";
const UNIT: &str = "profcol.history.unit";

// === impl Coverage ===

impl Coverage {
    /// `None` if the metadata is not that of a history's record.
    pub fn of(metadata: &Metadata) -> Option<Self> {
        let number = |name| metadata.get(name).first()?.parse().ok();
        let (names, units) = (metadata.get(TYPE), metadata.get(UNIT));
        let types = names.iter().zip(units).map(|(name, unit)| SampleType {
            name: name.clone(),
            unit: unit.clone(),
        });
        let coverage = Self {
            from: number(FROM)?,
            until: number(UNTIL)?,
            types: types.collect(),
        };
        (coverage.from <= coverage.until && names.len() == units.len()).then_some(coverage)
    }

    pub(super) fn of_record(record: &BrowsedRecord) -> Option<Self> {
        Self::of(&Head::decode(&record.head)?.metadata)
    }

    pub(super) fn overlaps(&self, from: u64, until: u64) -> bool {
        self.from < until && from <= self.until
    }

    /// Extends it by another one.
    pub fn add(&mut self, other: &Self) {
        self.from = self.from.min(other.from);
        self.until = self.until.max(other.until);
        for kind in &other.types {
            if !self.types.contains(kind) {
                self.types.push(kind.clone());
            }
        }
    }

    fn metadata(&self) -> Metadata {
        let mut metadata = Metadata::default();
        metadata.add(FROM, &self.from.to_string());
        metadata.add(UNTIL, &self.until.to_string());
        for kind in &self.types {
            metadata.add(TYPE, &kind.name);
            metadata.add(UNIT, &kind.unit);
        }
        metadata
    }
}

// === impl Piece ===

impl Piece {
    pub fn new(model: Model, coverage: Coverage, samples: u64) -> Self {
        let profiles = Profiles::from_model(model);
        let plain = profiles.to_wire();
        let head = Head {
            source: Source::Recorded,
            encoding: ENCODING.name().to_owned(),
            peer: None,
            metadata: coverage.metadata(),
            id: None,
        };
        Self {
            head: head.encode(),
            body: compress(ENCODING, Level::default(), &plain),
            counts: Counts {
                batches: 1,
                samples: profiles.sample_count() as u64,
                source_samples: samples,
                plain_bytes: plain.len() as u64,
            },
            coverage,
        }
    }
}

/// The chunk of a record; `None` if it was not written by this code. Its bytes are validated like a client's.
pub(super) fn restore(
    record: &BrowsedRecord,
    body: &[u8],
    resolution: Duration,
    sample_labels: &[String],
) -> Option<Chunk> {
    let encoding = Encoding::from_name(&Head::decode(&record.head)?.encoding)?;
    let limit = usize::try_from(record.counts().plain_bytes).ok()?;
    let plain = decompress(encoding, body, limit).ok()?;
    let received = Profiles::from_wire(plain, Validation::Reject).ok()?;
    let mut chunk = Chunk::new(resolution);
    chunk.add(
        received.profiles.model(),
        &Default::default(),
        sample_labels,
    );
    chunk.finish();
    Some(chunk)
}

// === impl Chunk ===

/// The profiles of one slice: those of a counted type have the value of a sample as their period.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct ProfileKey {
    kind: u32,
    period: u64,
    slice: usize,
}

/// The rows of a resource, by profile.
type ResourceRows<'a> = BTreeMap<ProfileKey, Vec<&'a Row>>;

impl Chunk {
    /// These slices as a batch, and the number of samples; `None` if there are none.
    pub fn piece(&self, slices: Range<usize>) -> Option<(Model, Coverage, u64)> {
        let mut rows = Interner::new();
        let mut by_resource: BTreeMap<Vec<(u32, u32)>, ResourceRows<'_>> = BTreeMap::new();
        let (mut samples, mut types) = (0, Vec::new());
        let found = self.slices.get(slices.clone())?;
        for (number, slice) in found.iter().enumerate() {
            for row in &slice.rows {
                let key = ProfileKey {
                    kind: row.kind,
                    period: self.period(row),
                    slice: number,
                };
                let resource = by_resource.entry(self.resource(row.series)).or_default();
                resource.entry(key).or_default().push(row);
                samples += u64::from(row.samples);
                if !types.contains(&row.kind) {
                    types.push(row.kind);
                }
            }
        }
        let coverage = Coverage {
            from: found.iter().map(|slice| slice.start).min()?,
            until: found
                .iter()
                .map(|slice| self.slice_end(slice.start))
                .max()?,
            types: types
                .iter()
                .filter_map(|&it| self.kind(it).cloned())
                .collect(),
        };
        let mut stacks = Stacks {
            chunk: self,
            locations: vec![None; self.location_count()],
        };
        let mut resources = Vec::new();
        for (labels, profiles) in by_resource {
            let attributes = labels.iter().map(|&(name, value)| KeyValue {
                key: self.attribute_name(name).into(),
                value: self.text(value).into(),
            });
            let resource = Resource {
                attributes: attributes.collect(),
                ..Resource::default()
            };
            // Values next to counts with periods of the same type would make them mere counts.
            let mut scopes = [ScopeProfiles::default(), ScopeProfiles::default()];
            for (key, of_profile) in profiles {
                let start = found.get(key.slice).map_or(0, |slice| slice.start);
                let profile = self.profile(&mut rows, &mut stacks, key, start, &of_profile);
                let [counts, values] = &mut scopes;
                let scope = if key.period > 0 { counts } else { values };
                scope.profiles.push(Arc::new(profile));
            }
            resources.push(ResourceProfiles {
                resource: Some(Arc::new(resource)),
                scopes: scopes
                    .into_iter()
                    .filter(|it| !it.profiles.is_empty())
                    .collect(),
                ..ResourceProfiles::default()
            });
        }
        let model = Model {
            dictionary: Arc::new(rows.finish()),
            resources,
        };
        Some((model, coverage, samples))
    }

    /// The value of each sample of a counted type; 0 if it is unknown.
    fn period(&self, row: &Row) -> u64 {
        let samples = u64::from(row.samples).max(1);
        match self.is_counted(row.kind) && row.value.is_multiple_of(samples) {
            true => row.value / samples,
            false => 0,
        }
    }

    fn profile(
        &self,
        rows: &mut Interner,
        stacks: &mut Stacks<'_>,
        key: ProfileKey,
        start: u64,
        of_profile: &[&Row],
    ) -> Profile {
        let none = SampleType::default();
        let kind = self.kind(key.kind).unwrap_or(&none);
        let own = ValueType {
            kind: rows.string(&kind.name),
            unit: rows.string(&kind.unit),
        };
        let count = ValueType {
            kind: rows.string("samples"),
            unit: rows.string("count"),
        };
        let is_count = key.period > 0 && own != count;
        let mut samples = Samples::default();
        for row in of_profile {
            let value = match is_count {
                true => u64::from(row.samples),
                false => row.value,
            };
            let attributes = self.sample_attributes(rows, row.series);
            samples.push(SampleRef {
                stack: stacks.add(rows, row.node),
                attributes: &attributes,
                values: &[i64::try_from(value).unwrap_or(i64::MAX)],
                ..SampleRef::default()
            });
        }
        let nanoseconds = |milliseconds: u64| milliseconds.saturating_mul(1_000_000);
        let mut profile = Profile {
            sample_type: Some(own),
            samples,
            time_unix_nano: nanoseconds(start),
            duration_nano: nanoseconds(self.slice_end(start) - start),
            ..Profile::default()
        };
        if is_count {
            profile.sample_type = Some(count);
            profile.period_type = Some(own);
            profile.period = i64::try_from(key.period).unwrap_or(i64::MAX);
        }
        profile
    }

    /// The labels of a series that belong to its resource.
    fn resource(&self, series: u32) -> Vec<(u32, u32)> {
        let labels = self.labels_of(series).iter().copied();
        labels
            .filter(|(name, _)| !self.is_of_sample(*name))
            .collect()
    }

    fn sample_attributes(&self, rows: &mut Interner, series: u32) -> Vec<AttributeIdx> {
        let labels = self.labels_of(series).iter();
        let own = labels.filter(|(name, _)| self.is_of_sample(*name));
        own.map(|&(name, value)| {
            let key = rows.string(self.attribute_name(name));
            rows.attribute(AttributeRef {
                key,
                value: &self.text(value).into(),
                unit: StringIdx::UNSET,
            })
        })
        .collect()
    }
}

/// Adds stacks of a chunk to a dictionary.
struct Stacks<'a> {
    chunk: &'a Chunk,
    /// By number in the chunk.
    locations: Vec<Option<LocationIdx>>,
}

impl Stacks<'_> {
    fn add(&mut self, rows: &mut Interner, node: u32) -> StackIdx {
        let mut stack = Vec::new();
        let mut next = self.chunk.nodes.get(node as usize);
        while let Some(&node) = next {
            let known = self.locations.get(node.location as usize).copied();
            stack.push(known.flatten().unwrap_or_else(|| {
                let frames = self.chunk.functions(node);
                let added = add_location(rows, &self.chunk.frames, frames);
                if let Some(slot) = self.locations.get_mut(node.location as usize) {
                    *slot = Some(added);
                }
                added
            }));
            next = self.chunk.nodes.get(node.parent as usize);
        }
        rows.stack(&stack)
    }
}
