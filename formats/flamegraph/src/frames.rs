//! Deduplicated frames.

use std::sync::Arc;

use foldhash::fast::RandomState;
use indexmap::IndexSet;
use profcol_profile::NamedLine;

use crate::code::{Code, FrameKind, Language};

/// A function in a binary.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Frame {
    /// Index of the function name; empty if the code has no symbol.
    pub name: u32,
    /// Index of its source file.
    pub file: u32,
    /// The line where the function starts; 0 if unknown.
    pub line: u32,
    /// Index of the file name of the executable or library.
    pub binary: u32,
    pub kind: FrameKind,
    pub language: Language,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FrameId(pub(crate) u32);

/// All frames of a tree and their strings.
#[derive(Clone, Debug)]
pub struct FrameTable {
    strings: IndexSet<Arc<str>, RandomState>,
    frames: IndexSet<Frame, RandomState>,
    string_bytes: usize,
}

/// Longer names are truncated: template names can reach a megabyte.
const MAX_NAME_LEN: usize = 4096;

impl Default for FrameTable {
    fn default() -> Self {
        Self {
            // Index 0 means unknown.
            strings: [Arc::from("")].into_iter().collect(),
            frames: IndexSet::default(),
            string_bytes: 0,
        }
    }
}

impl FrameTable {
    pub fn string(&mut self, text: &str) -> u32 {
        let text = &text[..text.floor_char_boundary(MAX_NAME_LEN)];
        if let Some(index) = self.strings.get_index_of(text) {
            return index as u32;
        }
        self.string_bytes += text.len();
        self.strings.insert_full(text.into()).0 as u32
    }

    pub fn text(&self, index: u32) -> &str {
        self.strings
            .get_index(index as usize)
            .map_or("", |text| text)
    }

    pub fn strings(&self) -> impl ExactSizeIterator<Item = &str> {
        self.strings.iter().map(|text| &**text)
    }

    pub fn add(&mut self, frame: Frame) -> FrameId {
        FrameId(self.frames.insert_full(frame).0 as u32)
    }

    pub fn get(&self, id: FrameId) -> Option<&Frame> {
        self.frames.get_index(id.0 as usize)
    }

    pub fn iter(&self) -> impl ExactSizeIterator<Item = &Frame> {
        self.frames.iter()
    }

    /// Copies a frame from another table.
    pub fn adopt(&mut self, frame: &Frame, from: &Self) -> FrameId {
        let own = Frame {
            name: self.string(from.text(frame.name)),
            file: self.string(from.text(frame.file)),
            binary: self.string(from.text(frame.binary)),
            ..*frame
        };
        self.add(own)
    }

    /// The functions at a location, outermost first. `lines` are innermost first, as in OTLP: all but the last are
    /// inlined into it.
    pub fn location<'a>(
        &mut self,
        code: Code<'_>,
        lines: impl ExactSizeIterator<Item = NamedLine<'a>>,
    ) -> Vec<FrameId> {
        let unnamed = self.unnamed_frame(code);
        let named = lines.map(|line| Frame {
            name: self.string(line.name),
            file: self.string(line.filename),
            line: start_line(line.start_line),
            ..unnamed
        });
        let named: Vec<Frame> = named.collect();
        let mut frames = Vec::with_capacity(named.len());
        self.add_inlined(named.into_iter(), &mut frames);
        frames
    }

    /// Adds the functions at a location, all but the last inlined, to `into`, outermost first.
    pub(crate) fn add_inlined(
        &mut self,
        functions: impl ExactSizeIterator<Item = Frame>,
        into: &mut Vec<FrameId>,
    ) {
        let outermost = functions.len().saturating_sub(1);
        into.extend(functions.enumerate().map(|(depth, function)| {
            let kind = match depth < outermost {
                true => FrameKind::Inlined,
                false => function.kind,
            };
            self.add(Frame { kind, ..function })
        }));
        into.reverse();
    }

    /// A frame for code without a symbol.
    pub fn unnamed(&mut self, code: Code<'_>) -> FrameId {
        let frame = self.unnamed_frame(code);
        self.add(frame)
    }

    pub(crate) fn unnamed_frame(&mut self, code: Code<'_>) -> Frame {
        Frame {
            binary: self.string(code.binary),
            kind: code.kind,
            language: code.language,
            ..Frame::default()
        }
    }

    /// The code of a frame.
    pub fn code(&self, frame: &Frame) -> Code<'_> {
        Code {
            binary: self.text(frame.binary),
            kind: frame.kind,
            language: frame.language,
        }
    }

    /// The display name: that of the function, else that of its binary.
    pub fn label(&self, id: FrameId) -> String {
        let Some(frame) = self.get(id) else {
            return String::new();
        };
        match self.text(frame.name) {
            "" => unnamed(self.text(frame.binary)),
            name => name.to_owned(),
        }
    }

    /// Estimated memory of the tables.
    pub fn heap_size(&self) -> usize {
        // The counts of a shared string, and the allocator's own word and rounding.
        const PER_STRING: usize = size_of::<Arc<str>>() + 16 + 16 + HASH_ENTRY;
        const PER_FRAME: usize = size_of::<Frame>() + HASH_ENTRY;
        /// `IndexSet` stores a hash and an index per entry, plus spare capacity.
        const HASH_ENTRY: usize = 24;
        self.string_bytes + self.strings.len() * PER_STRING + self.frames.len() * PER_FRAME
    }
}

/// The line of a frame; 0 if it is unknown.
pub(crate) fn start_line(line: i64) -> u32 {
    u32::try_from(line).unwrap_or(0)
}

/// The display name of code of `binary` without a symbol.
pub(crate) fn unnamed(binary: &str) -> String {
    match binary {
        "" => "[unknown]".to_owned(),
        binary if binary.starts_with('[') => binary.to_owned(),
        binary => format!("[{binary}]"),
    }
}
