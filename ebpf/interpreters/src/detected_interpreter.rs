//! An interpreter that was found in a file.

use serde::{Deserialize, Serialize};
use std::ops::Range;

use profcol_ebpf_common::interpreter::Interpreter;

use crate::runtime::Runtime;
use crate::{perl, php, python, ruby, v8};

/// An interpreter in a file.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct DetectedInterpreter {
    /// The readable form of [`Interpreter::runtime`].
    pub runtime: Runtime,
    /// For example `3.12.1`.
    pub version: String,
    /// File ranges of its loop.
    pub loops: Vec<Range<u64>>,
    /// File ranges of functions that only forward calls; sorted.
    pub forwarders: Vec<Range<u64>>,
    /// For the BPF programs.
    #[serde(skip)]
    pub interpreter: Interpreter,
    pub(crate) layout: RuntimeLayout,
}

/// The layout for reading names.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum RuntimeLayout {
    Python(python::CodeLayout),
    V8(Box<v8::HeapLayout>),
    Ruby(ruby::SequenceLayout),
    Php(php::FunctionLayout),
    Perl(perl::NameLayout),
    LuaJit,
}

impl DetectedInterpreter {
    /// Whether the code at this file offset only forwards calls between functions of the program.
    pub fn carries_calls(&self, offset: u64) -> bool {
        let after = self
            .forwarders
            .partition_point(|range| range.start <= offset);
        let range = after.checked_sub(1).and_then(|at| self.forwarders.get(at));
        range.is_some_and(|range| range.contains(&offset))
    }
}
