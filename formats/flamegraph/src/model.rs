//! Builds frames from the tables of a batch.

use std::collections::HashMap;
use std::sync::Arc;

use profcol_profile::{
    AttributeRef, Dictionary, Function, Interner, Line, Location, LocationIdx, LocationRef,
    Mapping, MappingIdx, MappingRef, Model, NamedLine, Profile, ResourceProfiles, SampleRef,
    Samples, ScopeProfiles, StackIdx, StringIdx, Value, ValueType,
};

use crate::FrameId;
use crate::document::Source;
use crate::frames::{Frame, FrameKind, FrameTable};
use crate::sample_type::{SampleType, measured};
use crate::tree::{CallTree, NodeId, Side};

const FRAME_TYPE: &str = "profile.frame.type";

/// Translates the locations of one batch.
pub struct ModelFrames<'a> {
    dictionary: &'a Dictionary,
}

/// Adds the samples of one type; returns their number.
pub fn add_model(tree: &mut CallTree, model: &Model, kind: &SampleType, side: Side) -> u64 {
    let dictionary = &*model.dictionary;
    let frames = ModelFrames::new(dictionary);
    let mut locations: HashMap<LocationIdx, Vec<FrameId>> = HashMap::new();
    let mut stacks: HashMap<StackIdx, NodeId> = HashMap::new();
    let mut samples = 0;
    for scope in model.resources.iter().flat_map(|it| &it.scopes) {
        let mut of_scope = 0;
        let mut counted = None;
        for measured in measured(scope, dictionary) {
            if measured.counts_samples() {
                counted = Some(measured.samples());
            }
            if !kind.is_of(&measured) {
                continue;
            }
            of_scope += measured.samples();
            for sample in measured.profile.samples.iter() {
                let node = *stacks.entry(sample.stack).or_insert_with(|| {
                    let mut node = NodeId::ROOT;
                    for &location in dictionary.stacks.get(sample.stack).iter().rev() {
                        let location_frames = locations
                            .entry(location)
                            .or_insert_with(|| frames.add_to(&mut tree.frames, location));
                        for &frame in &*location_frames {
                            node = tree.child(node, frame);
                        }
                    }
                    node
                });
                tree.add(node, side, measured.weigh(&sample).value);
            }
        }
        // If the batch also counts these samples, use that count.
        samples += match of_scope {
            0 => 0,
            of_scope => counted.unwrap_or(of_scope),
        };
    }
    samples
}

/// Converts a tree to a profile, for formats that are encoded from profiles.
pub fn to_model(tree: &CallTree, source: &Source) -> Model {
    let mut rows = Interner::new();
    let sample_type = ValueType {
        kind: rows.string(&source.sample_type.name),
        unit: rows.string(&source.sample_type.unit),
    };
    // Each function gets its own location, inlined ones too: the stack already shows where they were inlined.
    let locations: Vec<LocationIdx> = (0..tree.frames.iter().len())
        .map(|frame| add_location(&mut rows, &tree.frames, &[FrameId(frame as u32)]))
        .collect();
    let mut samples = Samples::default();
    for (row, node) in tree.nodes().iter().enumerate() {
        let value = i64::try_from(node.own.value).unwrap_or(i64::MAX);
        if value > 0 {
            let frames = tree.ancestors(NodeId::at(row));
            let stack: Vec<LocationIdx> = frames.map(|it| locations[it.0 as usize]).collect();
            samples.push(SampleRef {
                stack: rows.stack(&stack),
                values: &[value],
                ..SampleRef::default()
            });
        }
    }
    let profile = Profile {
        sample_type: Some(sample_type),
        samples,
        time_unix_nano: source.from.saturating_mul(1_000_000),
        duration_nano: source
            .until
            .saturating_sub(source.from)
            .saturating_mul(1_000_000),
        ..Profile::default()
    };
    Model {
        dictionary: Arc::new(rows.finish()),
        resources: vec![ResourceProfiles {
            scopes: vec![ScopeProfiles {
                profiles: vec![Arc::new(profile)],
                ..ScopeProfiles::default()
            }],
            ..ResourceProfiles::default()
        }],
    }
}

/// Adds a location with these functions, outermost first, so that [`ModelFrames::add_to`] finds them again.
pub fn add_location(rows: &mut Interner, table: &FrameTable, functions: &[FrameId]) -> LocationIdx {
    let frames = functions.iter().filter_map(|&id| table.get(id));
    let Some(outermost) = frames.clone().next() else {
        return LocationIdx::UNSET;
    };
    let binary = table.text(outermost.binary);
    let mapping = match outermost.kind {
        FrameKind::Interpreted | FrameKind::Marker => MappingIdx::UNSET,
        _ => mapping(rows, binary),
    };
    let attribute = match outermost.kind.frame_type(binary) {
        "" => None,
        frame_type => {
            let key = rows.string(FRAME_TYPE);
            Some(rows.attribute(AttributeRef {
                key,
                value: &frame_type.into(),
                unit: StringIdx::UNSET,
            }))
        }
    };
    let is_unnamed = functions.len() == 1 && outermost.name == 0;
    let lines: Vec<Line> = match is_unnamed {
        true => Vec::new(),
        false => frames.rev().map(|it| line(rows, table, it)).collect(),
    };
    rows.location(LocationRef {
        location: Location {
            mapping,
            address: 0,
        },
        lines: &lines,
        attributes: attribute.as_slice(),
    })
}

fn mapping(rows: &mut Interner, binary: &str) -> MappingIdx {
    if binary.is_empty() {
        return MappingIdx::UNSET;
    }
    let filename = rows.string(binary);
    rows.mapping(MappingRef {
        mapping: Mapping {
            filename,
            ..Mapping::default()
        },
        attributes: &[],
    })
}

fn line(rows: &mut Interner, frames: &FrameTable, frame: &Frame) -> Line {
    let name = rows.string(frames.text(frame.name));
    let function = Function {
        name,
        system_name: name,
        filename: rows.string(frames.text(frame.file)),
        start_line: frame.line.into(),
    };
    Line {
        function: rows.function(function),
        line: frame.line.into(),
        column: 0,
    }
}

impl<'a> ModelFrames<'a> {
    pub fn new(dictionary: &'a Dictionary) -> Self {
        Self { dictionary }
    }

    /// The functions at a location, outermost first.
    pub fn add_to(&self, frames: &mut FrameTable, location: LocationIdx) -> Vec<FrameId> {
        let row = self.dictionary.locations.get(location);
        let (binary, kind) = self.code(row);
        if row.lines.is_empty() {
            return vec![frames.unnamed(binary, kind)];
        }
        frames.location(binary, kind, row.lines.iter().map(|line| self.line(line)))
    }

    /// The file name of a location's binary, or the runtime that interprets its code, and the kind of code.
    pub fn code_at(&self, location: LocationIdx) -> (&'a str, FrameKind) {
        self.code(self.dictionary.locations.get(location))
    }

    /// Innermost first, as in OTLP.
    pub(crate) fn lines_at(&self, location: LocationIdx) -> Vec<NamedLine<'a>> {
        let lines = self.dictionary.locations.get(location).lines;
        lines.iter().map(|line| self.line(line)).collect()
    }

    pub fn is_named(&self, location: LocationIdx) -> bool {
        !self.dictionary.locations.get(location).lines.is_empty()
    }

    fn code(&self, row: LocationRef<'_>) -> (&'a str, FrameKind) {
        let mapping = self.dictionary.mappings.get(row.location.mapping).mapping;
        let path = self.dictionary.strings.get(mapping.filename);
        let binary = path.rsplit('/').next().unwrap_or(path);
        if binary.is_empty() && row.location.address == 0 && self.is_marker(row) {
            return (binary, FrameKind::Marker);
        }
        let frame_type = self.frame_type(row);
        if frame_type.is_empty() && binary.is_empty() && self.is_in_source_only(row) {
            // pprof has no frame types.
            return (binary, FrameKind::Interpreted);
        }
        let kind = FrameKind::of(frame_type, binary);
        if binary.is_empty() && kind == FrameKind::Interpreted {
            // Interpreted code has no binary; show its runtime instead.
            return (frame_type, kind);
        }
        (binary, kind)
    }

    /// A frame that is not code, such as `[stack ends: ...]`.
    fn is_marker(&self, row: LocationRef<'_>) -> bool {
        let name = |line: &Line| {
            let function = self.dictionary.functions.get(line.function)?;
            Some(self.dictionary.strings.get(function.name))
        };
        let mut names = row.lines.iter().filter_map(name);
        names.next().is_some_and(|name| name.starts_with('['))
    }

    /// Code with a source file but without an address.
    fn is_in_source_only(&self, row: LocationRef<'_>) -> bool {
        let mut lines = row.lines.iter().map(|line| self.line(line));
        row.location.address == 0 && lines.any(|line| !line.filename.is_empty())
    }

    fn frame_type(&self, row: LocationRef<'_>) -> &'a str {
        let attributes = row.attributes.iter();
        let mut attributes = attributes.filter_map(|&index| self.dictionary.attributes.get(index));
        let frame_type = attributes
            .find(|it| self.dictionary.strings.get(it.key) == FRAME_TYPE)
            .map(|it| &it.value);
        match frame_type {
            Some(Value::Str(kind)) => kind,
            _ => "",
        }
    }

    fn line(&self, line: &Line) -> NamedLine<'a> {
        let function = self.dictionary.functions.get(line.function);
        let text = |index| self.dictionary.strings.get(index);
        NamedLine {
            name: function.map_or("", |it| text(it.name)),
            system_name: function.map_or("", |it| text(it.system_name)),
            filename: function.map_or("", |it| text(it.filename)),
            start_line: function.map_or(0, |it| it.start_line),
            line: line.line,
            column: line.column,
        }
    }
}
