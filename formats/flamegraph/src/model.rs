//! Builds frames from the tables of a batch.

use std::collections::HashMap;

use foldhash::fast::RandomState;
use profcol_profile::{
    AttributeIdx, AttributeRef, Dictionary, Function, Interner, Line, Location, LocationIdx,
    LocationRef, Mapping, MappingIdx, MappingRef, Model, NamedLine, Profile, SampleRef, Samples,
    StackIdx, StringIdx, Value, ValueType,
};

use crate::FrameId;
use crate::code::{Code, Execution, FrameKind, Language};
use crate::document::Source;
use crate::frames::{Frame, FrameTable, start_line};
use crate::numbers::Numbers;
use crate::sample_type::{SampleType, measured};
use crate::tree::{CallTree, NodeId, Side};

const FRAME_TYPE: &str = "profile.frame.type";
const FRAME_CODE: &str = "profcol.frame.code";

/// Translates the locations of one batch.
pub struct ModelFrames<'a> {
    dictionary: &'a Dictionary,
}

/// Adds the locations of one batch to a table, and looks up each of its strings once.
pub struct FrameAdder<'a> {
    frames: ModelFrames<'a>,
    /// The numbers in the table by string of the batch.
    strings: Numbers,
    /// By mapping of a file, the attributes of its last location, and the frame of such code without a symbol.
    codes: HashMap<MappingIdx, (Vec<AttributeIdx>, Frame), RandomState>,
    /// The frames added for the last location.
    added: Vec<FrameId>,
}

/// Adds the samples of one type; returns their number.
pub fn add_model(tree: &mut CallTree, model: &Model, kind: &SampleType, side: Side) -> u64 {
    let dictionary = &*model.dictionary;
    let mut frames = FrameAdder::new(dictionary);
    let mut locations: HashMap<LocationIdx, Vec<FrameId>, RandomState> = HashMap::default();
    let mut stacks: HashMap<StackIdx, NodeId, RandomState> = HashMap::default();
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
                            .or_insert_with(|| frames.add_to(&mut tree.frames, location).to_vec());
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
    Model::of_profile(rows.finish(), None, profile)
}

/// Adds a location with these functions, outermost first, so that [`FrameAdder::add_to`] finds them again.
pub fn add_location(rows: &mut Interner, table: &FrameTable, functions: &[FrameId]) -> LocationIdx {
    let frames = functions.iter().filter_map(|&id| table.get(id));
    let Some(outermost) = frames.clone().next() else {
        return LocationIdx::UNSET;
    };
    let code = table.code(outermost);
    let mapping = match code.has_mapping() {
        true => mapping(rows, code.binary),
        false => MappingIdx::UNSET,
    };
    let texts = [
        (FRAME_TYPE, code.frame_type()),
        (FRAME_CODE, code.execution().map_or("", Execution::name)),
    ];
    let known = texts.into_iter().filter(|(_, text)| !text.is_empty());
    let attributes: Vec<AttributeIdx> = known
        .map(|(key, text)| {
            let key = rows.string(key);
            rows.attribute(AttributeRef {
                key,
                value: &text.into(),
                unit: StringIdx::UNSET,
            })
        })
        .collect();
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
        attributes: &attributes,
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

impl<'a> FrameAdder<'a> {
    pub fn new(dictionary: &'a Dictionary) -> Self {
        Self {
            frames: ModelFrames::new(dictionary),
            strings: Numbers::new(dictionary.strings.len()),
            codes: HashMap::default(),
            added: Vec::new(),
        }
    }

    /// The functions at a location, outermost first. `table` is always the same.
    pub fn add_to(&mut self, table: &mut FrameTable, location: LocationIdx) -> &[FrameId] {
        let dictionary = self.frames.dictionary;
        let row = dictionary.locations.get(location);
        let unnamed = self.unnamed(table, row);
        self.added.clear();
        if row.lines.is_empty() {
            self.added.push(table.add(unnamed));
            return &self.added;
        }
        let mut string = |index: StringIdx| {
            let text = dictionary.strings.get(index);
            (self.strings).get_or_insert_with(index.row(), || table.string(text))
        };
        let functions = row.lines.iter().map(|line| {
            let function = dictionary.functions.get(line.function);
            function.map_or(unnamed, |function| Frame {
                name: string(function.name),
                file: string(function.filename),
                line: start_line(function.start_line),
                ..unnamed
            })
        });
        let functions: Vec<Frame> = functions.collect();
        table.add_inlined(functions.into_iter(), &mut self.added);
        &self.added
    }

    pub fn is_named(&self, location: LocationIdx) -> bool {
        self.frames.is_named(location)
    }

    /// The frame of the location's code, without a symbol.
    fn unnamed(&mut self, table: &mut FrameTable, row: LocationRef<'_>) -> Frame {
        let mapping = row.location.mapping;
        if let Some((attributes, frame)) = self.codes.get(&mapping)
            && attributes == row.attributes
        {
            return *frame;
        }
        let frame = table.unnamed_frame(self.frames.code(row));
        // In no file, it also depends on the functions.
        if self.frames.is_in_file(row) {
            let code = (row.attributes.to_vec(), frame);
            self.codes.insert(mapping, code);
        }
        frame
    }
}

impl<'a> ModelFrames<'a> {
    pub fn new(dictionary: &'a Dictionary) -> Self {
        Self { dictionary }
    }

    pub fn code_at(&self, location: LocationIdx) -> Code<'a> {
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

    fn binary(&self, row: LocationRef<'_>) -> &'a str {
        let mapping = self.dictionary.mappings.get(row.location.mapping).mapping;
        let path = self.dictionary.strings.get(mapping.filename);
        path.rsplit('/').next().unwrap_or(path)
    }

    fn is_in_file(&self, row: LocationRef<'_>) -> bool {
        !self.binary(row).is_empty()
    }

    fn code(&self, row: LocationRef<'_>) -> Code<'a> {
        let binary = self.binary(row);
        let frame_type = self.text_attribute(row, FRAME_TYPE);
        let execution = Execution::from_name(self.text_attribute(row, FRAME_CODE));
        let is_in_no_file = binary.is_empty() && row.location.address == 0;
        let kind = match frame_type {
            _ if is_in_no_file && self.is_marker(row) => FrameKind::Marker,
            // pprof has no frame types.
            "" if is_in_no_file && self.has_source(row) => FrameKind::Runtime,
            frame_type => FrameKind::of(frame_type, execution, binary),
        };
        let language = match (kind, frame_type) {
            (FrameKind::Marker, _) => Language::Unknown,
            (FrameKind::Kernel, _) => Language::Kernel,
            // Folded stacks do not say what their functions are.
            (FrameKind::Native, "") if is_in_no_file => Language::Unknown,
            (FrameKind::Native, "") => Language::Native,
            // Machine code that another language may have generated.
            (FrameKind::Jit, "native") => Language::Unknown,
            (_, frame_type) => Language::of_frame_type(frame_type),
        };
        let is_of_runtime = kind == FrameKind::Runtime || language.has_runtime();
        Code {
            // Code that a runtime runs may have no binary; show its runtime instead.
            binary: match binary {
                "" if is_of_runtime => frame_type,
                binary => binary,
            },
            kind,
            language,
        }
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

    fn has_source(&self, row: LocationRef<'_>) -> bool {
        let mut lines = row.lines.iter().map(|line| self.line(line));
        lines.any(|line| !line.filename.is_empty())
    }

    fn text_attribute(&self, row: LocationRef<'_>, key: &str) -> &'a str {
        let attributes = row.attributes.iter();
        let mut attributes = attributes.filter_map(|&index| self.dictionary.attributes.get(index));
        let found = attributes
            .find(|it| self.dictionary.strings.get(it.key) == key)
            .map(|it| &it.value);
        match found {
            Some(Value::Str(text)) => text,
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
