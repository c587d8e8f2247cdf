//! Interpreters without a file, for tests and for fuzzing.

use profcol_ebpf_common::interpreter::Interpreter;

use super::layout::{
    COOKIE, DEBUG_OFFSETS_BYTES, DebugOffsets, FREE_THREADED, OFFSETS_3_13, OFFSETS_3_14, Version,
    layouts,
};
use crate::Runtime;
use crate::detected_interpreter::{DetectedInterpreter, RuntimeLayout};

/// The supported versions.
pub fn versions() -> Vec<String> {
    let mut versions: Vec<String> = examples().into_iter().map(|it| it.version).collect();
    versions.dedup();
    versions
}

/// One example of each version, and of its free-threaded build.
pub fn examples() -> Vec<DetectedInterpreter> {
    let example = |(minor, build)| {
        let version = Version { minor, micro: None };
        let table = match minor {
            13 => Some(offset_table(&OFFSETS_3_13, build)),
            14 => Some(offset_table(&OFFSETS_3_14, build)),
            _ if build == Build::FreeThreaded => return None,
            _ => None,
        };
        let (layout, python) = layouts(version, table.as_deref()).ok()?;
        Some(DetectedInterpreter {
            runtime: Runtime::Python,
            version: version.to_string(),
            loops: Vec::new(),
            forwarders: Vec::new(),
            interpreter: Interpreter {
                python: layout,
                ..Interpreter::default()
            },
            layout: RuntimeLayout::Python(python),
        })
    };
    let builds = [Build::Default, Build::FreeThreaded];
    let builds = (0..=u8::MAX).flat_map(|minor| builds.map(|build| (minor, build)));
    builds.filter_map(example).collect()
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Build {
    Default,
    FreeThreaded,
}

/// A table of offsets: those of 3.13.0, and with free threading those of 3.14.9.
pub fn offset_table(at: &DebugOffsets, build: Build) -> Vec<u8> {
    let mut table = vec![0; DEBUG_OFFSETS_BYTES];
    let mut put = |at: usize, bytes: &[u8]| {
        if let Some(place) = table.get_mut(at..at + bytes.len()) {
            place.copy_from_slice(bytes);
        }
    };
    put(0, COOKIE);
    let version = 3 << 24 | at.minor << 16;
    put(COOKIE.len(), &version.to_le_bytes());
    let is_free_threaded = build == Build::FreeThreaded;
    let either = |free_threaded: u64, default: u64| match build {
        Build::FreeThreaded => free_threaded,
        Build::Default => default,
    };
    let offsets: [(usize, u64); 24] = [
        (FREE_THREADED, is_free_threaded.into()),
        (at.interpreters_head, either(808, 632)),
        (at.interpreter_next, either(7272, 7264)),
        (at.threads_head, 7344),
        (at.thread_next, 8),
        (at.thread_interpreter, 16),
        (at.current_frame, 72),
        (at.thread_id, 152),
        (at.frame_size, either(88, 80)),
        (at.frame_previous, 8),
        (at.frame_executable, 0),
        (at.frame_instruction, 56),
        (at.frame_owner, either(78, 70)),
        (at.code_filename, either(128, 112)),
        (at.code_name, either(136, 120)),
        (at.code_qualified_name, either(144, 128)),
        (at.code_line_table, either(152, 136)),
        (at.code_first_line, either(84, 68)),
        (at.code_adaptive, either(232, 200)),
        (at.bytes_size, either(32, 16)),
        (at.bytes_data, either(48, 32)),
        (at.text_state, either(48, 32)),
        (at.text_length, either(32, 16)),
        (at.text_ascii_size, either(56, 40)),
    ];
    for (at, offset) in offsets {
        put(at, &offset.to_le_bytes());
    }
    if let Some(at) = at.code_copies.filter(|_| is_free_threaded) {
        put(at, &224u64.to_le_bytes());
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_version_has_an_example() {
        let expected = ["3.8", "3.9", "3.10", "3.11", "3.12", "3.13", "3.14"];
        assert_eq!(versions(), expected);
        assert_eq!(examples().len(), expected.len() + 2);
    }
}
