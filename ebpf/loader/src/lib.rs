//! The user space part of the eBPF receiver.
//!
//! ```text
//! perf events ─► programs ─► ring ─► records ─► the receiver
//!                   ▲         └─► a new file ────────► tables: read it, build its table ─┐
//!                   └────────────────────── arena, map of files ◄───────────────────────┘
//! ```
//!
//! * [`Loaded`] holds the programs ([`programs`]); [`Profiler`] opens a perf event per CPU ([`events`]) and
//!   returns their [`records`].
//! * [`tables`] runs two threads: the [`opener`] opens executables, the [`builder`] builds their unwind
//!   tables and puts them into the [`arena`] that the programs read.
//! * [`sideband`] publishes mappings to the programs if they cannot read the kernel's VMA tree.
//! * [`btf`] finds the members of kernel structures; [`functions`] symbolizes the vDSO.
//!
//! Unsafe code is in [`sys`] alone.

mod addresses;
mod areas;
mod arena;
mod btf;
mod builder;
mod capabilities;
mod clock;
mod events;
mod file_map;
mod files;
mod functions;
mod identify;
mod jobs;
mod load_error;
mod loaded_object;
mod mapping_source;
mod memory;
mod names;
mod namespace;
mod objects;
mod opener;
mod path_resolver;
mod preflight;
mod profiler;
mod programs;
mod record_buffer;
mod records;
mod registers;
mod requirement;
mod requirements;
mod runtime_counts;
mod sample_counts;
mod sampled_files;
mod self_test;
mod sideband;
mod start_error;
mod sys;
mod table_counts;
mod tables;

pub use capabilities::capabilities;
pub use clock::{Clock, Event};
pub use files::AnnouncedFile;
pub use functions::Functions;
pub use names::Names;
pub use namespace::Scope;
pub use opener::{OnOpened, Opened};
pub use profcol_ebpf_common::context::{Context, part};
pub use profcol_ebpf_common::file::file_number;
pub use profcol_ebpf_common::frame::Frame;
pub use profcol_ebpf_common::interpreter::{runtime as interpreter_runtime, unreadable};
pub use profcol_ebpf_common::reason::EndReason;
pub use profcol_ebpf_common::record::{MAX_USER_FRAMES, Process, ProcessKey, Sample};
pub use profcol_ebpf_common::sample_counts::{SampleKey, count_buffer};
pub use profiler::{Counts, Loaded, Profiler, Settings};
pub use records::{InterpretedFrame, Labels, Record, StackFrame, StackFrames, context};
pub use requirement::{Requirement, Shortfall};
pub use requirements::{Unwinding, clock, cycles, requirements, trial, unwinding};
pub use runtime_counts::{CountedRuntime, RuntimeCounts};
pub use sampled_files::{SampledFile, SampledFiles};
pub use sideband::MappingCounts;
pub use start_error::{ProfilerStartError, StartFailure};
pub use sys::{next_bpf_program, own_cpu_time, release_heap, since_boot};
pub use table_counts::TableCounts;
