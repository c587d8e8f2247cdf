//! In-kernel aggregation: counts equal samples instead of sending each.

use core::arch::asm;

use aya_ebpf::bindings::BPF_NOEXIST;
use aya_ebpf::macros::map;
use aya_ebpf::maps::HashMap;
use profcol_ebpf_common::record::MAX_KERNEL_FRAMES;
use profcol_ebpf_common::sample_counts::{SampleKey, StackHash, count_buffer};
use profcol_ebpf_common::{barrier_var, counter};

use crate::maps;
use crate::scratch::{Scratch, ScratchHandle};

#[map(name = "first_counts")]
static FIRST: HashMap<SampleKey, u64> = HashMap::with_max_entries(1, 0);

#[map(name = "second_counts")]
static SECOND: HashMap<SampleKey, u64> = HashMap::with_max_entries(1, 0);

/// Counts the sample if an equal one was sent since the buffers were swapped.
#[inline(always)]
pub fn count_if_sent(scratch: &mut Scratch, count_buffer: u32) -> bool {
    scratch.sample.count_buffer = count_buffer;
    if count_buffer == count_buffer::NONE {
        return false;
    }
    let key = scratch.sample.sample_key();
    let found = if count_buffer == count_buffer::FIRST {
        FIRST.get_ptr_mut(&key)
    } else {
        SECOND.get_ptr_mut(&key)
    };
    let Some(count) = found else {
        return false;
    };
    // SAFETY: the entry does not move while the program runs. CPUs count concurrently, and aya has no
    // atomic addition for this target.
    unsafe { asm!("lock *(u64 *)({0} + 0) += {1}", in(reg) count, in(reg) 1u64) };
    maps::count(counter::COUNTED_SAMPLES);
    true
}

/// Counts equal samples from now on. If the map is full, each is sent.
#[inline(always)]
pub fn start_counting(scratch: &Scratch) {
    let key = scratch.sample.sample_key();
    let none = barrier_var(0);
    let flags = u64::from(BPF_NOEXIST);
    let _ = match scratch.sample.count_buffer {
        count_buffer::FIRST => FIRST.insert(&key, &none, flags),
        count_buffer::SECOND => SECOND.insert(&key, &none, flags),
        _ => Ok(()),
    };
}

/// Hashes the kernel frames; the unwinder adds each user frame.
#[unsafe(no_mangle)]
#[inline(never)]
pub extern "C" fn begin_hash(handle: ScratchHandle) -> u32 {
    let Some(scratch) = Scratch::from_handle(handle) else {
        return 0;
    };
    let frames = scratch.sample.kernel_frames as usize;
    let mut stack = StackHash::begin(scratch.sample.kernel_frames);
    for (place, frame) in scratch.frames.iter().take(MAX_KERNEL_FRAMES).enumerate() {
        if place >= frames {
            break;
        }
        stack.add(*frame);
    }
    scratch.sample.stack = stack;
    0
}
