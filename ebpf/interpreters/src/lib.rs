//! Interpreters in executable files, and the functions that they run.
//!
//! * [`detect`] finds what a file has: the loop, whose native frames run interpreted ones, and where
//!   the version of the runtime keeps what, for the programs and for [`names`].
//! * [`names`] reads the names of functions out of processes, on a thread of its own.
//!
//! A runtime is a module here, and one of `profcol-ebpf-common`'s `interpreter`; [`detect`] has the
//! list. Files and processes are anybody's: what is read has a limit, and what does not fit together
//! is refused.

mod executable;
mod jumps;
mod memory;
pub mod names;
mod python;

use std::ops::Range;

use profcol_ebpf_common::interpreter::Interpreter;
use profcol_ebpf_unwind::ElfCode;
use profcol_elf::Source;

use crate::executable::Executable;
pub use crate::memory::{Memory, MemoryError, ProcessMemory};
pub use crate::names::InterpretedFunction;
use crate::python::Code;
pub use crate::python::FunctionError;

/// An interpreter in a file.
#[derive(Clone, Debug)]
pub struct DetectedInterpreter {
    /// As [`Interpreter::runtime`] has it, for people.
    pub runtime: Runtime,
    /// For example `3.12.1`.
    pub version: String,
    /// Offsets in the file of the code of its loop.
    pub loops: Vec<Range<u64>>,
    /// Offsets in the file of functions that do nothing but carry calls; sorted.
    pub calls: Vec<Range<u64>>,
    /// For the programs.
    pub interpreter: Interpreter,
    python: python::CodeLayout,
}

impl DetectedInterpreter {
    /// Reads a function that a sample met.
    pub fn function(
        &self,
        memory: &impl Memory,
        address: u64,
        generation: u32,
    ) -> Result<InterpretedFunction, FunctionError> {
        Ok(InterpretedFunction {
            runtime: self.runtime,
            code: Code::read(&self.python, memory, address, generation)?,
        })
    }

    /// What tells the function at an address from others that had it before.
    pub fn generation(&self, memory: &impl Memory, address: u64) -> Result<u32, FunctionError> {
        Code::generation(&self.python, memory, address)
    }

    /// Whether the code at this offset in the file does nothing but carry calls from one function of the
    /// program to another.
    pub fn carries_calls(&self, offset: u64) -> bool {
        let after = self.calls.partition_point(|range| range.start <= offset);
        let range = after.checked_sub(1).and_then(|at| self.calls.get(at));
        range.is_some_and(|range| range.contains(&offset))
    }

    /// One of each version whose layout is known without its file.
    pub fn examples() -> Vec<Self> {
        python::examples()
    }
}

/// The runtimes that are supported.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Runtime {
    Python,
}

/// An interpreter that cannot be followed: its code is native frames.
#[derive(Debug, thiserror::Error)]
#[error("{runtime} {version} is not supported: {why}")]
pub struct Unsupported {
    pub runtime: &'static str,
    pub version: String,
    pub why: &'static str,
}

impl Runtime {
    /// As the semantic conventions name it, in `profile.frame.type`.
    pub fn frame_type(self) -> &'static str {
        match self {
            Self::Python => "cpython",
        }
    }

    /// As it stands in front of frames that have no name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Python => "python",
        }
    }

    /// By its number in frames.
    pub fn from_number(number: u32) -> Option<Self> {
        match number {
            profcol_ebpf_common::interpreter::runtime::PYTHON => Some(Self::Python),
            _ => None,
        }
    }
}

/// The interpreter in a file, if there is one.
pub fn detect(
    code: &ElfCode,
    source: &(impl Source + ?Sized),
) -> Result<Option<DetectedInterpreter>, Unsupported> {
    let Some(executable) = Executable::read(code, source) else {
        return Ok(None);
    };
    python::detect(&executable)
}
