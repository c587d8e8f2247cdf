//! Translates the stacks of a batch.

use std::collections::HashMap;

use indexmap::IndexSet;
use profcol_profile::{Dictionary, LocationIdx, NamedLine, StackIdx};

use super::tables::{Frame, Function, Shared};
use crate::code::Code;
use crate::frames::unnamed;
use crate::model::ModelFrames;

pub(super) struct StackTable<'a> {
    dictionary: &'a Dictionary,
    code: ModelFrames<'a>,
    strings: IndexSet<String>,
    sources: HashMap<usize, usize>,
    resources: HashMap<usize, usize>,
    functions: HashMap<Function, usize>,
    frames: HashMap<Frame, usize>,
    nodes: HashMap<(Option<usize>, usize), usize>,
    /// The frames of each location, outermost first.
    locations: HashMap<LocationIdx, Vec<usize>>,
    stacks: HashMap<StackIdx, Option<usize>>,
    shared: Shared,
}

impl<'a> StackTable<'a> {
    pub fn new(dictionary: &'a Dictionary) -> Self {
        Self {
            dictionary,
            code: ModelFrames::new(dictionary),
            strings: IndexSet::new(),
            sources: HashMap::new(),
            resources: HashMap::new(),
            functions: HashMap::new(),
            frames: HashMap::new(),
            nodes: HashMap::new(),
            locations: HashMap::new(),
            stacks: HashMap::new(),
            shared: Shared::default(),
        }
    }

    /// `None` if the stack is empty.
    pub fn stack(&mut self, stack: StackIdx) -> Option<usize> {
        if let Some(&known) = self.stacks.get(&stack) {
            return known;
        }
        let mut node = None;
        for &location in self.dictionary.stacks.get(stack).iter().rev() {
            if !self.locations.contains_key(&location) {
                let frames = self.frames_at(location);
                self.locations.insert(location, frames);
            }
            for &frame in self.locations.get(&location).into_iter().flatten() {
                let shared = &mut self.shared;
                let next = self.nodes.entry((node, frame));
                node = Some(*next.or_insert_with(|| shared.add_stack(node, frame)));
            }
        }
        self.stacks.insert(stack, node);
        node
    }

    pub fn finish(mut self) -> Shared {
        self.shared.string_array = self.strings.into_iter().collect();
        self.shared
    }

    fn frames_at(&mut self, location: LocationIdx) -> Vec<usize> {
        let Code { binary, kind, .. } = self.code.code_at(location);
        let resource = self.resource(binary);
        let mut lines = self.code.lines_at(location);
        if lines.is_empty() {
            lines.push(NamedLine::default());
        }
        // Innermost first: all but the last are inlined into it.
        let mut frames = Vec::with_capacity(lines.len());
        for (inline_depth, line) in (0..).zip(lines.into_iter().rev()) {
            let name = match line.name {
                "" => self.string(&unnamed(binary)),
                name => self.string(name),
            };
            let function = Function {
                name,
                resource,
                source: self.source(line.filename),
                line: known(line.start_line),
            };
            let function = self.function(function);
            frames.push(self.frame(Frame {
                function,
                kind,
                inline_depth,
                line: known(line.line),
                column: known(line.column),
            }));
        }
        frames
    }

    fn frame(&mut self, frame: Frame) -> usize {
        let shared = &mut self.shared;
        let known = self.frames.entry(frame);
        *known.or_insert_with(|| shared.add_frame(frame))
    }

    fn function(&mut self, function: Function) -> usize {
        let shared = &mut self.shared;
        let known = self.functions.entry(function);
        *known.or_insert_with(|| shared.add_function(function))
    }

    fn resource(&mut self, binary: &str) -> Option<usize> {
        if binary.is_empty() {
            return None;
        }
        let name = self.string(binary);
        let shared = &mut self.shared;
        let resource = self.resources.entry(name);
        Some(*resource.or_insert_with(|| shared.add_resource(name)))
    }

    fn source(&mut self, filename: &str) -> Option<usize> {
        if filename.is_empty() {
            return None;
        }
        let filename = self.string(filename);
        let shared = &mut self.shared;
        let source = self.sources.entry(filename);
        Some(*source.or_insert_with(|| shared.add_source(filename)))
    }

    fn string(&mut self, text: &str) -> usize {
        match self.strings.get_index_of(text) {
            Some(index) => index,
            None => self.strings.insert_full(text.to_owned()).0,
        }
    }
}

/// Lines and columns count from 1; 0 is unknown.
fn known(number: i64) -> Option<i64> {
    (number > 0).then_some(number)
}
