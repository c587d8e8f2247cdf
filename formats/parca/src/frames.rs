//! Converts the locations of a batch to Parca frames.
//!
//! | frame | file | build id | address | lines |
//! |---|---|---|---|---|
//! | native, without symbols | last part of the path | GNU, or else the file's hash | in the ELF file | none |
//! | kernel | `[kernel.kallsyms]` | none | in the kernel or module | function, and `vmlinux` or the module |
//! | interpreted | none | none | unchanged | function and file |
//! | any with lines | as native | as native | unchanged | unchanged |

use profcol_profile::{
    AttributeIdx, Function, Idx, Line, LocationIdx, Mapping, MappingRef, Model, StringIdx,
};

pub const GNU_BUILD_ID: &str = "process.executable.build_id.gnu";
/// The attribute with the frame type, and the build id attributes in order of preference.
const KEYS: [&str; 5] = [
    "profile.frame.type",
    GNU_BUILD_ID,
    "process.executable.build_id.htlhash",
    "pprof.mapping.build_id",
    "process.executable.build_id.go",
];

const KERNEL: &str = "kernel";
const KERNEL_FILE: &str = "[kernel.kallsyms]";
const KERNEL_SOURCE: &str = "vmlinux";
/// Parca's UI does not show a row for an empty name.
const UNKNOWN: &str = "UNKNOWN";
const UNREPORTED: &str = "UNREPORTED";

/// A resolved location.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Frame<'a> {
    pub kind: &'a str,
    pub address: u64,
    /// All zero if the address is already relative to the file.
    pub memory: Mapping,
    /// Empty if unknown.
    pub file: &'a str,
    pub build_id: &'a str,
    pub lines: &'a [Line],
    /// The file of functions without one of their own.
    pub source: &'a str,
    /// Whether the code of the frame could be identified.
    pub is_known: bool,
}

/// A resolved line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SourceLine<'a> {
    pub name: &'a str,
    pub system_name: &'a str,
    pub file: &'a str,
    pub start_line: i64,
    pub line: i64,
    pub column: i64,
}

/// Resolves the locations of a batch.
pub struct Frames<'a> {
    model: &'a Model,
    frame_type: Option<StringIdx>,
    build_ids: [Option<StringIdx>; KEYS.len() - 1],
}

impl<'a> Frames<'a> {
    pub fn new(model: &'a Model) -> Self {
        let mut keys = [None; KEYS.len()];
        for (row, text) in (0..).zip(model.dictionary.strings.iter()) {
            if let Some(index) = KEYS.iter().position(|key| *key == text) {
                keys[index].get_or_insert(Idx::new(row));
            }
        }
        let [frame_type, build_ids @ ..] = keys;
        Self {
            model,
            frame_type,
            build_ids,
        }
    }

    pub fn model(&self) -> &'a Model {
        self.model
    }

    pub fn frame(&self, location: LocationIdx) -> Frame<'a> {
        let dictionary = &self.model.dictionary;
        let location = dictionary.locations.get(location);
        let mapping = dictionary.mappings.get(location.location.mapping);
        let kind = self.attribute(location.attributes, self.frame_type);
        let mut frame = Frame {
            kind: kind.unwrap_or("unknown"),
            address: location.location.address,
            lines: location.lines,
            is_known: true,
            ..Frame::default()
        };
        match kind {
            Some(KERNEL) => {
                frame.file = KERNEL_FILE;
                frame.source = self.module(mapping.mapping.filename);
            }
            // An interpreter's frame is identified by its lines.
            Some(kind) if !is_native(kind) && !location.location.mapping.is_set() => {
                frame.source = UNKNOWN;
            }
            _ => {
                if kind.is_some_and(is_native) {
                    frame.kind = "native";
                }
                self.native(&mut frame, kind.is_some(), mapping);
            }
        }
        frame
    }

    fn native(&self, frame: &mut Frame<'a>, is_of_file: bool, mapping: MappingRef<'a>) {
        let path = self.model.dictionary.strings.get(mapping.mapping.filename);
        frame.file = path.rsplit('/').next().unwrap_or_default();
        let mut keys = self.build_ids.iter();
        let build_id = keys.find_map(|key| self.attribute(mapping.attributes, *key));
        frame.build_id = build_id.unwrap_or_default();
        if frame.file.is_empty() && frame.lines.is_empty() {
            frame.file = UNKNOWN;
            frame.is_known = false;
        }
        // Profilers that set the frame type report file addresses.
        if !is_of_file {
            frame.memory = mapping.mapping;
        }
    }

    /// The lines of a frame, innermost first. Parca symbolizes a frame without lines by its address in an uploaded
    /// file, but the kernel is never uploaded.
    pub fn lines(&self, frame: &Frame<'a>) -> impl Iterator<Item = SourceLine<'a>> {
        let frame = *frame;
        let is_unnamed = frame.lines.is_empty() && frame.kind == KERNEL;
        let unnamed = is_unnamed.then_some(Line::default());
        let lines = frame.lines.iter().copied().chain(unnamed);
        lines.map(move |line| self.line(&frame, line))
    }

    fn line(&self, frame: &Frame<'a>, line: Line) -> SourceLine<'a> {
        let dictionary = &self.model.dictionary;
        let function = dictionary.functions.get(line.function);
        let Function {
            name,
            system_name,
            filename,
            start_line,
        } = function.copied().unwrap_or_default();
        let text = |row: StringIdx| dictionary.strings.get(row);
        let (name, system_name, file) = (text(name), text(system_name), text(filename));
        let name = if name.is_empty() { system_name } else { name };
        SourceLine {
            name: match name {
                "" if frame.kind == KERNEL => UNKNOWN,
                "" => UNREPORTED,
                name => name,
            },
            system_name,
            file: if file.is_empty() { frame.source } else { file },
            start_line,
            line: line.line,
            column: line.column,
        }
    }

    /// Modules have the kernel's name, `[ext4]`, or a path.
    fn module(&self, file: StringIdx) -> &'a str {
        let file = self.model.dictionary.strings.get(file);
        let name = file.trim_start_matches('[').trim_end_matches(']');
        match name {
            "" | "kernel.kallsyms" | "vmlinux" | "kernel" => KERNEL_SOURCE,
            name => name,
        }
    }

    fn attribute(&self, rows: &[AttributeIdx], key: Option<StringIdx>) -> Option<&'a str> {
        let key = key?;
        let attributes = &self.model.dictionary.attributes;
        let mut attributes = rows.iter().filter_map(|&row| attributes.get(row));
        let attribute = attributes.find(|attribute| attribute.key == key)?;
        attribute.value.as_str()
    }
}

/// Code that Parca's server symbolizes from the executable.
fn is_native(kind: &str) -> bool {
    matches!(kind, "native" | "go" | "rust")
}
