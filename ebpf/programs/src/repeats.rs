//! Counts equal samples instead of sending each.

use core::arch::asm;

use aya_ebpf::bindings::BPF_NOEXIST;
use aya_ebpf::macros::map;
use aya_ebpf::maps::HashMap;
use profcol_ebpf_common::record::MAX_KERNEL_FRAMES;
use profcol_ebpf_common::repeat::{Repeat, StackHash, turn};
use profcol_ebpf_common::{counter, hide};

use crate::maps;
use crate::scratch::{Lent, Scratch};

#[map(name = "first_repeats")]
static FIRST: HashMap<Repeat, u64> = HashMap::with_max_entries(1, 0);

#[map(name = "second_repeats")]
static SECOND: HashMap<Repeat, u64> = HashMap::with_max_entries(1, 0);

/// Counts the sample where one like it was sent in this turn.
#[inline(always)]
pub fn is_repeat(scratch: &mut Scratch, turn: u32) -> bool {
    scratch.sample.turn = turn;
    if turn == turn::NONE {
        return false;
    }
    let key = scratch.sample.repeat();
    let found = if turn == turn::FIRST {
        FIRST.get_ptr_mut(&key)
    } else {
        SECOND.get_ptr_mut(&key)
    };
    let Some(count) = found else {
        return false;
    };
    // SAFETY: the entry stays where it is while the program runs. CPUs may count at once, and the
    // library has no atomic addition for this target.
    unsafe { asm!("lock *(u64 *)({0} + 0) += {1}", in(reg) count, in(reg) 1u64) };
    maps::count(counter::REPEATS);
    true
}

/// From now on those like it are counted. Where there is no room each is sent.
#[inline(always)]
pub fn was_sent(scratch: &Scratch) {
    let key = scratch.sample.repeat();
    let none = hide(0);
    let flags = u64::from(BPF_NOEXIST);
    let _ = match scratch.sample.turn {
        turn::FIRST => FIRST.insert(&key, &none, flags),
        turn::SECOND => SECOND.insert(&key, &none, flags),
        _ => Ok(()),
    };
}

/// Begins the stack's hash with the kernel's frames; the walk adds each of the user's.
#[unsafe(no_mangle)]
#[inline(never)]
pub extern "C" fn begin_hash(lent: Lent) -> u32 {
    let Some(scratch) = Scratch::borrow(lent) else {
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
