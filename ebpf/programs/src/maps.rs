//! The maps that the programs share with the loader, which sizes them.

use aya_ebpf::macros::map;
use aya_ebpf::maps::{Array, HashMap, LruHashMap, PerCpuArray, Queue, RingBuf};
use profcol_ebpf_common::counter::COUNTERS;
use profcol_ebpf_common::file::{FileEntry, FileId};
use profcol_ebpf_common::published::{Area, Image, Stretch};
use profcol_ebpf_common::record::ProcessKey;
use profcol_ebpf_common::settings::Settings;

use crate::kernel::Node;
use crate::remembered::Remembered;
use crate::scratch::Scratch;

const BPF_F_MMAPABLE: u32 = 1 << 10;

#[map(name = "settings")]
static SETTINGS: Array<Settings> = Array::with_max_entries(1, 0);

#[map(name = "scratch")]
static SCRATCH: PerCpuArray<Scratch> = PerCpuArray::with_max_entries(1, 0);

/// For the program that the loader runs: the one that a tick runs may interrupt it.
#[map(name = "own_node")]
static OWN_NODE: PerCpuArray<Node> = PerCpuArray::with_max_entries(1, 0);

#[map(name = "counters")]
static COUNTS: PerCpuArray<[u64; COUNTERS]> = PerCpuArray::with_max_entries(1, 0);

/// Every file that a sample met.
#[map(name = "files")]
pub static FILES: HashMap<FileId, FileEntry> = HashMap::with_max_entries(8192, 0);

/// Numbers that no file has.
#[map(name = "free_numbers")]
pub static FREE_NUMBERS: Queue<u32> = Queue::with_max_entries(8192, 0);

/// What is known of processes that were sampled, see `record::known`.
#[map(name = "processes")]
pub static PROCESSES: LruHashMap<ProcessKey, u32> = LruHashMap::with_max_entries(8192, 0);

/// Where the areas of each image of a process are, if they are published.
#[map(name = "stretches")]
pub static STRETCHES: HashMap<Image, Stretch> = HashMap::with_max_entries(1, 0);

#[map(name = "areas")]
pub static AREAS: Array<Area> = Array::with_max_entries(1, BPF_F_MMAPABLE);

/// As many for each CPU as [`REMEMBERED_SHIFT`](profcol_ebpf_common::settings::REMEMBERED_SHIFT) says.
#[map(name = "remembered")]
pub static REMEMBERED: Array<Remembered> = Array::with_max_entries(1, 0);

#[map(name = "records")]
pub static RECORDS: RingBuf = RingBuf::with_byte_size(1 << 20, 0);

pub fn settings() -> Option<&'static Settings> {
    SETTINGS.get(0)
}

pub fn scratch() -> Option<&'static mut Scratch> {
    // SAFETY: a program is not interrupted by itself on its CPU, so nobody else has this reference.
    SCRATCH
        .get_ptr_mut(0)
        .map(|scratch| unsafe { &mut *scratch })
}

pub fn own_node() -> Option<&'static mut Node> {
    // SAFETY: the loader runs one program at a time, and its thread may move to another CPU but not
    // while the program runs.
    OWN_NODE.get_ptr_mut(0).map(|node| unsafe { &mut *node })
}

pub fn count(counter: u32) {
    add(counter, 1);
}

pub fn add(counter: u32, more: u64) {
    if let Some(counts) = COUNTS.get_ptr_mut(0) {
        let place = profcol_ebpf_common::hide(u64::from(counter)) as usize & (COUNTERS - 1);
        // SAFETY: the place is below the array's length, which is a power of two.
        unsafe { *counts.cast::<u64>().add(place) += more };
    }
}
