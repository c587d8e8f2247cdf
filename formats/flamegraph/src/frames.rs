//! Deduplicated frames.

use std::sync::Arc;

use indexmap::IndexSet;
use profcol_profile::NamedLine;
use serde::Serialize;

/// A function in a binary.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
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
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum FrameKind {
    #[default]
    Native,
    Kernel,
    Jit,
    Interpreted,
    Inlined,
    /// Not a function: the reason why a stack ends.
    Marker,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FrameId(pub(crate) u32);

/// All frames of a tree and their strings.
#[derive(Clone, Debug)]
pub struct FrameTable {
    strings: IndexSet<Arc<str>>,
    frames: IndexSet<Frame>,
    string_bytes: usize,
}

/// Longer names are truncated: template names can reach a megabyte.
const MAX_NAME_LEN: usize = 4096;

impl FrameKind {
    pub const ALL: [Self; 6] = [
        Self::Native,
        Self::Kernel,
        Self::Jit,
        Self::Interpreted,
        Self::Inlined,
        Self::Marker,
    ];

    /// Classifies a frame by its `profile.frame.type` attribute, else by the file of its mapping.
    pub fn of(frame_type: &str, binary: &str) -> Self {
        let is_kernel =
            binary == "vmlinux" || binary.starts_with("[kernel") || binary.ends_with(".ko");
        match (frame_type, binary) {
            ("kernel", _) => Self::Kernel,
            ("", _) if is_kernel => Self::Kernel,
            (_, "[jit]" | "[anon]") => Self::Jit,
            ("" | "native" | "go" | "rust", _) => Self::Native,
            _ => Self::Interpreted,
        }
    }

    /// The `profile.frame.type` from which [`of`](Self::of) finds this kind again.
    pub fn frame_type(self, binary: &str) -> &str {
        match self {
            Self::Kernel => "kernel",
            Self::Native => "native",
            // Its runtime.
            Self::Interpreted => binary,
            Self::Jit | Self::Inlined | Self::Marker => "",
        }
    }

    pub fn name(self) -> &'static str {
        match self {
            Self::Native => "native",
            Self::Kernel => "kernel",
            Self::Jit => "jit",
            Self::Interpreted => "interpreted",
            Self::Inlined => "inlined",
            Self::Marker => "marker",
        }
    }
}

impl Default for FrameTable {
    fn default() -> Self {
        Self {
            // Index 0 means unknown.
            strings: IndexSet::from([Arc::from("")]),
            frames: IndexSet::new(),
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
        binary: &str,
        kind: FrameKind,
        lines: impl ExactSizeIterator<Item = NamedLine<'a>>,
    ) -> Vec<FrameId> {
        let binary = self.string(binary);
        let last = lines.len().saturating_sub(1);
        let mut frames: Vec<FrameId> = lines
            .enumerate()
            .map(|(depth, line)| {
                let frame = Frame {
                    name: self.string(line.name),
                    file: self.string(line.filename),
                    line: u32::try_from(line.start_line).unwrap_or(0),
                    binary,
                    kind: match depth < last {
                        true => FrameKind::Inlined,
                        false => kind,
                    },
                };
                self.add(frame)
            })
            .collect();
        frames.reverse();
        frames
    }

    /// A frame for code of `binary` without a symbol.
    pub fn unnamed(&mut self, binary: &str, kind: FrameKind) -> FrameId {
        let frame = Frame {
            name: 0,
            file: 0,
            line: 0,
            binary: self.string(binary),
            kind,
        };
        self.add(frame)
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
        const PER_STRING: usize = size_of::<Arc<str>>() + 16 + HASH_ENTRY;
        const PER_FRAME: usize = size_of::<Frame>() + HASH_ENTRY;
        /// `IndexSet` stores a hash and an index per entry, plus spare capacity.
        const HASH_ENTRY: usize = 24;
        self.string_bytes + self.strings.len() * PER_STRING + self.frames.len() * PER_FRAME
    }
}

/// The display name of code of `binary` without a symbol.
pub(crate) fn unnamed(binary: &str) -> String {
    match binary {
        "" => "[unknown]".to_owned(),
        binary if binary.starts_with('[') => binary.to_owned(),
        binary => format!("[{binary}]"),
    }
}
