//! Detects interpreters in executable files, and reads the functions that they run.
//!
//! * [`detect`] finds an interpreter in a file: its loop, whose native frames run interpreted ones, and the memory
//!   layout of its version, for the BPF programs and for [`names`].
//! * [`names`] reads function names from processes, on a thread of its own.
//!
//! Each runtime is a module here, and one in `profcol-ebpf-common`'s `interpreter`; [`detect`] has the
//! list. Files and processes are untrusted: all reads have limits, and contradictory data is rejected.

pub mod beam;
pub mod context;
pub mod dotnet;
mod elf_file;
mod error;
pub mod hotspot;
mod jumps;
pub mod language_runtimes;
mod luajit;
mod memory;
pub mod names;
mod perl;
mod php;
mod python;
mod ruby;
mod runtime_files;
mod v8;
mod version;

use std::borrow::Cow;
use std::ops::Range;

use profcol_ebpf_common::interpreter::{Interpreter, runtime};
use profcol_ebpf_unwind::ElfCode;
use profcol_elf::Source;

use crate::elf_file::ElfFile;
pub use crate::error::FunctionError;
pub use crate::memory::{Memory, MemoryError, ProcessMemory};
pub use crate::names::InterpretedFunction;
use crate::python::Code;

/// An interpreter in a file.
#[derive(Clone, Debug)]
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
    pub interpreter: Interpreter,
    layout: RuntimeLayout,
}

/// The layout for reading names.
#[derive(Clone, Debug)]
enum RuntimeLayout {
    Python(python::CodeLayout),
    V8(Box<v8::HeapLayout>),
    Ruby(ruby::SequenceLayout),
    Php(php::FunctionLayout),
    Perl(perl::NameLayout),
    LuaJit,
}

/// A sampled function.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SampledFunction {
    /// One of [`runtime`].
    pub runtime: u32,
    pub address: u64,
    /// Distinguishes it from earlier functions at this address.
    pub generation: u32,
    /// An address in its generated code, or that of a method, see
    /// [`ruby::Function`](profcol_ebpf_common::interpreter::ruby::Function), or of what names it, see
    /// [`perl::Function`](profcol_ebpf_common::interpreter::perl::Function); 0 without.
    pub code_address: u64,
}

impl SampledFunction {
    /// Whether its address is meaningless in another process.
    fn is_of_process(&self) -> bool {
        Runtime::from_number(self.runtime).is_some_and(Runtime::is_of_process)
    }
}

/// Data of a process that is shared by all its names.
#[derive(Debug, Default)]
pub struct ProcessCache {
    v8: v8::ProcessCache,
}

/// How a runtime runs a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Execution {
    Interpreted,
    /// Compiled at run time.
    Jit,
    /// Compiled ahead of time.
    Aot,
}

/// A frame of a function with its source position.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceFrame<'a> {
    pub name: Cow<'a, str>,
    /// Empty if it has none.
    pub file: Cow<'a, str>,
    /// 0 if unknown, as for `line`.
    pub first_line: u32,
    pub line: u32,
}

impl Execution {
    /// The value of `profcol.frame.code`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Interpreted => "interpreted",
            Self::Jit => "jit",
            Self::Aot => "aot",
        }
    }
}

impl DetectedInterpreter {
    /// Reads a sampled function.
    pub fn function(
        &self,
        memory: &impl Memory,
        cache: &mut ProcessCache,
        sampled: &SampledFunction,
    ) -> Result<InterpretedFunction, FunctionError> {
        Ok(InterpretedFunction(match &self.layout {
            RuntimeLayout::Python(layout) => {
                let code = Code::read(layout, memory, sampled.address, sampled.generation)?;
                names::Function::Python(code)
            }
            RuntimeLayout::V8(layout) => {
                names::Function::V8(cache.v8.frames(layout, memory, sampled)?)
            }
            RuntimeLayout::Php(layout) => names::Function::Php(php::PhpFunction::read(
                layout,
                memory,
                sampled.address,
                sampled.generation,
            )?),
            RuntimeLayout::Perl(layout) => names::Function::Perl(perl::Statement::read(
                layout,
                memory,
                sampled.address,
                sampled.code_address,
                sampled.generation,
            )?),
            RuntimeLayout::LuaJit => names::Function::LuaJit(luajit::Prototype::read(
                memory,
                sampled.address,
                sampled.generation,
            )?),
            RuntimeLayout::Ruby(layout) => names::Function::Ruby(ruby::Sequence::read(
                layout,
                memory,
                sampled.address,
                sampled.generation,
                sampled.code_address as u32,
            )?),
        }))
    }

    /// The value that distinguishes the function at an address from earlier ones; see [`SampledFunction`].
    pub fn generation(
        &self,
        memory: &impl Memory,
        address: u64,
        code_address: u64,
    ) -> Result<u32, FunctionError> {
        match &self.layout {
            RuntimeLayout::Python(layout) => Code::generation(layout, memory, address),
            RuntimeLayout::V8(layout) => v8::generation(layout, memory, address),
            RuntimeLayout::Ruby(_) => ruby::generation(memory, address),
            RuntimeLayout::Php(layout) => php::generation(layout, memory, address),
            RuntimeLayout::Perl(layout) => perl::generation(layout, memory, address, code_address),
            RuntimeLayout::LuaJit => luajit::generation(memory, address),
        }
    }

    /// Whether the code at this file offset only forwards calls between functions of the program.
    pub fn carries_calls(&self, offset: u64) -> bool {
        let after = self
            .forwarders
            .partition_point(|range| range.start <= offset);
        let range = after.checked_sub(1).and_then(|at| self.forwarders.get(at));
        range.is_some_and(|range| range.contains(&offset))
    }

    /// One example of each version whose layout does not depend on the file.
    pub fn examples() -> Vec<Self> {
        let mut examples = python::examples();
        examples.extend(v8::examples());
        examples.extend(ruby::examples());
        examples.extend(php::examples());
        examples.extend(perl::examples());
        examples.extend(luajit::examples());
        examples
    }
}

/// The supported runtimes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Runtime {
    Python,
    V8,
    Java,
    Ruby,
    Php,
    Perl,
    LuaJit,
    Beam,
    DotNet,
}

/// An unsupported interpreter, whose code shows as native frames.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{runtime} {version} is not supported: {why}")]
pub struct Unsupported {
    pub runtime: &'static str,
    pub version: String,
    pub why: &'static str,
}

impl Runtime {
    /// The value of `profile.frame.type` in the semantic conventions.
    pub fn frame_type(self) -> &'static str {
        match self {
            Self::Python => "cpython",
            Self::V8 => "v8js",
            Self::Java => "jvm",
            Self::Ruby => "ruby",
            Self::Php => "php",
            Self::Perl => "perl",
            Self::LuaJit => "luajit",
            Self::Beam => "beam",
            Self::DotNet => "dotnet",
        }
    }

    /// The prefix of frames without a name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Python => "python",
            Self::V8 => "v8",
            Self::Java => "java",
            Self::Ruby => "ruby",
            Self::Php => "php",
            Self::Perl => "perl",
            Self::LuaJit => "luajit",
            Self::Beam => "beam",
            Self::DotNet => "dotnet",
        }
    }

    /// Whether it is found through a process, not through its file.
    pub fn is_of_process(self) -> bool {
        matches!(self, Self::Java | Self::Beam | Self::DotNet)
    }

    /// By its number in frames.
    pub fn from_number(number: u32) -> Option<Self> {
        match number {
            runtime::PYTHON => Some(Self::Python),
            runtime::V8 | runtime::V8_GENERATED => Some(Self::V8),
            runtime::HOTSPOT_INTERPRETED | runtime::HOTSPOT_COMPILED | runtime::HOTSPOT_STUB => {
                Some(Self::Java)
            }
            runtime::RUBY => Some(Self::Ruby),
            runtime::PHP => Some(Self::Php),
            runtime::PERL => Some(Self::Perl),
            runtime::LUAJIT => Some(Self::LuaJit),
            runtime::BEAM => Some(Self::Beam),
            runtime::DOTNET => Some(Self::DotNet),
            _ => None,
        }
    }
}

/// The interpreter in a file, if there is one.
pub fn detect(
    code: &ElfCode,
    source: &(impl Source + ?Sized),
) -> Result<Option<DetectedInterpreter>, Unsupported> {
    let Some(executable) = ElfFile::read(code, source) else {
        return Ok(None);
    };
    if let Some(detected) = python::detect(&executable)? {
        return Ok(Some(detected));
    }
    if let Some(detected) = v8::detect(&executable)? {
        return Ok(Some(detected));
    }
    if let Some(detected) = ruby::detect(&executable)? {
        return Ok(Some(detected));
    }
    if let Some(detected) = php::detect(&executable)? {
        return Ok(Some(detected));
    }
    if let Some(detected) = perl::detect(&executable)? {
        return Ok(Some(detected));
    }
    luajit::detect(&executable)
}
