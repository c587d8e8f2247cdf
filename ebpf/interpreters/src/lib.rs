//! Detects interpreters in executable files, and reads the functions that they run.
//!
//! * [`detect()`] finds an interpreter in a file: its loop, whose native frames run interpreted ones, and the memory
//!   layout of its version, for the BPF programs and for [`names`].
//! * [`names`] reads function names from processes, on a thread of its own.
//!
//! Each runtime is a module here, and one in `profcol-ebpf-common`'s `interpreter`; [`detect()`] has the
//! list. Files and processes are untrusted: all reads have limits, and contradictory data is rejected.

pub mod beam;
pub mod context;
mod detect;
mod detected_interpreter;
pub mod dotnet;
mod elf_file;
mod encoded;
mod error;
mod file_runtime;
mod functions;
pub mod hotspot;
mod interpreted_function;
mod jumps;
pub mod language_runtimes;
mod luajit;
mod memory;
pub mod names;
mod perl;
mod php;
mod python;
mod ruby;
mod runtime;
mod runtime_files;
mod sampled_function;
mod source_frame;
pub mod support;
mod v8;
mod version;

pub use detect::detect;
pub use detected_interpreter::DetectedInterpreter;
pub use encoded::EncodedError;
pub use error::{FunctionError, Unsupported};
pub use file_runtime::FileRuntime;
pub use functions::ProcessCache;
pub use interpreted_function::InterpretedFunction;
pub use memory::{Memory, MemoryError, ProcessMemory};
pub use runtime::Runtime;
pub use sampled_function::SampledFunction;
pub use source_frame::{Execution, SourceFrame};
