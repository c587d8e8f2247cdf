//! Interpreters without a file, for tests and for fuzzing.

use profcol_ebpf_common::interpreter::Interpreter;

use super::layout::{
    COOKIE, DEBUG_OFFSETS_BYTES, DebugOffsets, OFFSETS_3_13, OFFSETS_3_14, Version, layouts,
};
use crate::Runtime;
use crate::detected_interpreter::{DetectedInterpreter, RuntimeLayout};

/// The supported versions.
pub fn versions() -> Vec<String> {
    examples().into_iter().map(|it| it.version).collect()
}

/// One example of each version.
pub fn examples() -> Vec<DetectedInterpreter> {
    let example = |minor| {
        let version = Version { minor, micro: None };
        let table = match minor {
            13 => Some(offset_table(&OFFSETS_3_13)),
            14 => Some(offset_table(&OFFSETS_3_14)),
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
    (0..=u8::MAX).filter_map(example).collect()
}

/// A table of offsets, those of 3.13.0.
fn offset_table(at: &DebugOffsets) -> Vec<u8> {
    let mut table = vec![0; DEBUG_OFFSETS_BYTES];
    let mut put = |at: usize, bytes: &[u8]| {
        if let Some(place) = table.get_mut(at..at + bytes.len()) {
            place.copy_from_slice(bytes);
        }
    };
    put(0, COOKIE);
    let version = 3 << 24 | at.minor << 16;
    put(COOKIE.len(), &version.to_le_bytes());
    let offsets: [(usize, u64); 23] = [
        (at.interpreters_head, 632),
        (at.interpreter_next, 7264),
        (at.threads_head, 7344),
        (at.thread_next, 8),
        (at.thread_interpreter, 16),
        (at.current_frame, 72),
        (at.thread_id, 152),
        (at.frame_size, 80),
        (at.frame_previous, 8),
        (at.frame_executable, 0),
        (at.frame_instruction, 56),
        (at.frame_owner, 70),
        (at.code_filename, 112),
        (at.code_name, 120),
        (at.code_qualified_name, 128),
        (at.code_line_table, 136),
        (at.code_first_line, 68),
        (at.code_adaptive, 200),
        (at.bytes_size, 16),
        (at.bytes_data, 32),
        (at.text_state, 32),
        (at.text_length, 16),
        (at.text_ascii_size, 40),
    ];
    for (at, offset) in offsets {
        put(at, &offset.to_le_bytes());
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_version_has_an_example() {
        let examples = examples();
        let versions: Vec<&str> = examples.iter().map(|it| &*it.version).collect();
        let expected = ["3.8", "3.9", "3.10", "3.11", "3.12", "3.13", "3.14"];
        assert_eq!(versions, expected);
    }
}
