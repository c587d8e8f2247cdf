//! The maps shared with the loader, which sets their sizes.

use aya_ebpf::macros::map;
use aya_ebpf::maps::{Array, HashMap, LruHashMap, PerCpuArray, Queue, RingBuf};
use profcol_ebpf_common::context::ContextLayout;
use profcol_ebpf_common::context::library::ProcessContexts;
use profcol_ebpf_common::counter::COUNTERS;
use profcol_ebpf_common::file::{FileEntry, FileId};
use profcol_ebpf_common::interpreter::beam::BeamProcess;
use profcol_ebpf_common::interpreter::dotnet::DotNetProcess;
use profcol_ebpf_common::interpreter::hotspot::JavaProcess;
use profcol_ebpf_common::interpreter::{Interpreter, RuntimeProcess};
use profcol_ebpf_common::published::{Area, ImageAreas, ProcessImage};
use profcol_ebpf_common::record::{ProcessKey, ThreadKey};
use profcol_ebpf_common::settings::Settings;

use crate::frame_cache::CacheEntry;
use crate::kernel::Node;
use crate::scratch::Scratch;

const BPF_F_MMAPABLE: u32 = 1 << 10;

#[map(name = "settings")]
static SETTINGS: Array<Settings> = Array::with_max_entries(1, 0);

#[map(name = "scratch")]
static SCRATCH: PerCpuArray<Scratch> = PerCpuArray::with_max_entries(1, 0);

/// For the `identify` program, which the `sample` program may interrupt.
#[map(name = "identify_node")]
static IDENTIFY_NODE: PerCpuArray<Node> = PerCpuArray::with_max_entries(1, 0);

#[map(name = "counters")]
static COUNTERS_MAP: PerCpuArray<[u64; COUNTERS]> = PerCpuArray::with_max_entries(1, 0);

/// Every file seen in samples.
#[map(name = "files")]
pub static FILES: HashMap<FileId, FileEntry> = HashMap::with_max_entries(8192, 0);

/// Unused file numbers.
#[map(name = "free_numbers")]
pub static FREE_NUMBERS: Queue<u32> = Queue::with_max_entries(8192, 0);

/// Sampled processes, see `record::process_state`.
#[map(name = "processes")]
pub static PROCESSES: LruHashMap<ProcessKey, u32> = LruHashMap::with_max_entries(8192, 0);

/// By file number.
#[map(name = "interpreters")]
pub static INTERPRETERS: HashMap<u32, Interpreter> = HashMap::with_max_entries(1, 0);

/// The interpreter's state of a thread.
#[map(name = "python_threads")]
pub static PYTHON_THREADS: LruHashMap<ThreadKey, u64> = LruHashMap::with_max_entries(1, 0);

/// The file with V8, for each process that runs its code.
#[map(name = "v8_files")]
pub static V8_FILES: LruHashMap<ProcessKey, u32> = LruHashMap::with_max_entries(1, 0);

/// Processes that run Ruby or PHP.
#[map(name = "runtime_processes")]
pub static RUNTIME_PROCESSES: LruHashMap<ProcessKey, RuntimeProcess> =
    LruHashMap::with_max_entries(1, 0);

/// Processes that run HotSpot.
#[map(name = "java_processes")]
pub static JAVA_PROCESSES: LruHashMap<ProcessKey, JavaProcess> = LruHashMap::with_max_entries(1, 0);

/// Processes that run BEAM.
#[map(name = "beam_processes")]
pub static BEAM_PROCESSES: LruHashMap<ProcessKey, BeamProcess> = LruHashMap::with_max_entries(1, 0);

/// Processes that run .NET.
#[map(name = "dotnet_processes")]
pub static DOTNET_PROCESSES: LruHashMap<ProcessKey, DotNetProcess> =
    LruHashMap::with_max_entries(1, 0);

/// Where threads have contexts, by the file number of the executable.
#[map(name = "executable_contexts")]
pub static EXECUTABLE_CONTEXTS: HashMap<u32, ContextLayout> = HashMap::with_max_entries(1, 0);

/// Where threads have contexts in libraries, for each process that has such libraries.
#[map(name = "process_contexts")]
pub static PROCESS_CONTEXTS: LruHashMap<ProcessKey, ProcessContexts> =
    LruHashMap::with_max_entries(1, 0);

/// The areas of each process image, if they are published.
#[map(name = "image_areas")]
pub static IMAGE_AREAS: HashMap<ProcessImage, ImageAreas> = HashMap::with_max_entries(1, 0);

#[map(name = "areas")]
pub static AREAS: Array<Area> = Array::with_max_entries(1, BPF_F_MMAPABLE);

/// Partitioned by CPU, see [`FRAME_CACHE_SHIFT`](profcol_ebpf_common::settings::FRAME_CACHE_SHIFT).
#[map(name = "frame_cache")]
pub static FRAME_CACHE: Array<CacheEntry> = Array::with_max_entries(1, 0);

#[map(name = "records")]
pub static RECORDS: RingBuf = RingBuf::with_byte_size(1 << 20, 0);

pub fn settings() -> Option<&'static Settings> {
    SETTINGS.get(0)
}

pub fn scratch() -> Option<&'static mut Scratch> {
    // SAFETY: a program does not interrupt itself on its CPU, so the reference is unique.
    SCRATCH
        .get_ptr_mut(0)
        .map(|scratch| unsafe { &mut *scratch })
}

pub fn identify_node() -> Option<&'static mut Node> {
    // SAFETY: the loader runs one program at a time, and does not migrate while the program runs.
    IDENTIFY_NODE
        .get_ptr_mut(0)
        .map(|node| unsafe { &mut *node })
}

pub fn count(counter: u32) {
    add(counter, 1);
}

pub fn add(counter: u32, value: u64) {
    if let Some(counts) = COUNTERS_MAP.get_ptr_mut(0) {
        let index = profcol_ebpf_common::barrier_var(u64::from(counter)) as usize & (COUNTERS - 1);
        // SAFETY: the mask bounds the index.
        unsafe { *counts.cast::<u64>().add(index) += value };
    }
}
