//! Interpreters as text, between the process that finds them and the one that uses them.
//!
//! A file may have exploited the former. The layout decides how much of a process's memory is read for a name, so what the
//! text says is bounded.

use profcol_ebpf_common::interpreter::Interpreter;
use serde_json::Value;

use crate::DetectedInterpreter;

/// Ranges of code; interpreters have some hundred at most.
const MAX_RANGES: usize = 4096;
const MAX_VERSION: usize = 64;
/// Larger than all structures of an interpreter.
const MAX_OFFSET: u64 = 1 << 20;
/// Numbers in a list of the layout, such as the sizes of bytecodes.
const MAX_LIST: usize = 4096;

/// Why a text is no interpreter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EncodedError {
    #[error("interpreter data cannot be decoded")]
    Undecodable,
    #[error("interpreter data with invalid code ranges")]
    Ranges,
    #[error("interpreter data with a version that is too long")]
    Version,
    #[error("interpreter data with an invalid layout")]
    Layout,
}

impl DetectedInterpreter {
    /// Everything but [`interpreter`](Self::interpreter).
    pub fn encode(&self) -> String {
        // It has only numbers, texts and lists of them.
        serde_json::to_string(self).unwrap_or_default()
    }

    pub fn decode(text: &str, interpreter: Interpreter) -> Result<Self, EncodedError> {
        let value: Value = serde_json::from_str(text).map_err(|_| EncodedError::Undecodable)?;
        if !value.get("layout").is_some_and(is_plausible) {
            return Err(EncodedError::Layout);
        }
        let decoded = serde_json::from_value(value).map_err(|_| EncodedError::Undecodable)?;
        let decoded = Self {
            interpreter,
            ..decoded
        };
        let are_ranges = [&decoded.loops, &decoded.forwarders]
            .into_iter()
            .all(|it| it.len() <= MAX_RANGES && it.iter().all(|range| range.start < range.end));
        match () {
            () if !are_ranges || !decoded.forwarders.is_sorted_by_key(|it| it.start) => {
                Err(EncodedError::Ranges)
            }
            () if decoded.version.len() > MAX_VERSION => Err(EncodedError::Version),
            () => Ok(decoded),
        }
    }
}

fn is_plausible(layout: &Value) -> bool {
    match layout {
        Value::Number(number) => number.as_u64().is_some_and(|it| it <= MAX_OFFSET),
        Value::Array(list) => list.len() <= MAX_LIST && list.iter().all(is_plausible),
        Value::Object(members) => members.values().all(is_plausible),
        Value::Null | Value::Bool(_) | Value::String(_) => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_interpreter_is_decoded_as_it_was() {
        let examples = DetectedInterpreter::examples();
        assert!(examples.len() > 20, "{}", examples.len());
        for example in examples {
            let text = example.encode();
            let decoded = DetectedInterpreter::decode(&text, example.interpreter);
            let decoded = decoded.unwrap_or_else(|error| panic!("{error}: {text}"));
            assert_eq!(format!("{decoded:?}"), format!("{example:?}"));
        }
    }

    #[test]
    fn impossible_interpreters_are_rejected() {
        let example = DetectedInterpreter {
            loops: vec![0x1000..0x2000, 0x2100..0x2200],
            forwarders: vec![0x3000..0x3010, 0x4000..0x4010],
            version: "3.12.1".to_owned(),
            ..DetectedInterpreter::examples().swap_remove(0)
        };
        let text = example.encode();
        let check = |from: &str, to: &str, expected| {
            let changed = text.replacen(from, to, 1);
            assert_ne!(changed, text, "{from}");
            let decoded = DetectedInterpreter::decode(&changed, example.interpreter);
            assert_eq!(decoded.err(), Some(expected), "{changed}");
        };
        check("3.12.1", &"3".repeat(65), EncodedError::Version);
        check("8192", "4096", EncodedError::Ranges);
        check("12288", "20480", EncodedError::Ranges);
        check("\"size\":", "\"size\":9999999", EncodedError::Layout);
        check("\"size\":", "\"size\":-", EncodedError::Layout);
        check("{", "[", EncodedError::Undecodable);
        check("Python", "Cobol", EncodedError::Undecodable);
        let many = DetectedInterpreter {
            loops: vec![0x1000..0x2000; 5000],
            ..example.clone()
        };
        let decoded = DetectedInterpreter::decode(&many.encode(), example.interpreter);
        assert_eq!(decoded.err(), Some(EncodedError::Ranges));
    }
}
