//! The eBPF side of the receiver, seen from user space.
//!
//! ```text
//! perf events ─► programs ─► ring ─► records ─► the receiver
//!                   ▲         └─► a file never seen ─► tables: read it, build its table ─┐
//!                   └────────────────────── arena, map of files ◄───────────────────────┘
//! ```
//!
//! * [`Loaded`] has the programs ([`programs`]); [`Profiler`] opens a clock per CPU ([`events`]) and
//!   hands out what they found ([`records`]).
//! * [`tables`] are two threads: the [`opener`] opens executables, the [`builder`] builds their unwind
//!   tables and puts them into the [`arena`] that the programs read.
//! * [`sideband`] tells the programs of mappings, where they cannot read the kernel's own tree.
//! * [`btf`] finds the members of the kernel's structures; [`functions`] names the code of the vDSO.
//!
//! Unsafe code is in [`sys`] alone.

mod addresses;
mod areas;
mod arena;
mod btf;
mod builder;
mod clock;
mod events;
mod files;
mod functions;
mod identify;
mod interpreters;
mod jobs;
mod load_error;
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
mod records;
mod registers;
mod requirements;
mod sample_counts;
mod sampled_files;
mod self_test;
mod sideband;
mod sys;
mod tables;

pub use clock::{Clock, Event};
pub use functions::Functions;
pub use names::Names;
pub use opener::{OnOpened, Opened};
pub use preflight::capabilities;
pub use profcol_ebpf_common::file::file_number;
pub use profcol_ebpf_common::frame::Frame;
pub use profcol_ebpf_common::interpreter::unreadable;
pub use profcol_ebpf_common::reason::EndReason;
pub use profcol_ebpf_common::record::{MAX_USER_FRAMES, Process, ProcessKey, Sample};
pub use profcol_ebpf_common::sample_counts::{SampleKey, count_buffer};
pub use profiler::{Counts, Loaded, Profiler, Settings, StartError};
pub use records::{Frames, InterpretedFrame, Record, StackFrame};
pub use requirements::{
    Requirement, Shortfall, Unwinding, clock, cycles, interpreter, requirements, trial, unwinding,
};
pub use sampled_files::{SampledFile, SampledFiles};
pub use sideband::MappingCounts;
pub use sys::{next_bpf_program, own_cpu_time, since_boot, trim_heap};
pub use tables::TableCounts;
