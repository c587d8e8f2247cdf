//! Tells the loader which file is behind an address of its own.
//!
//! It is run on demand, in the loader's own context. With it the loader proves at start that the
//! kernel's tree is read rightly, and later that a file it opened by a path is the one that a
//! sample met. It also finds where threads have their user's registers while they are in the kernel.

use aya_ebpf::EbpfContext;
use aya_ebpf::helpers::generated::bpf_get_current_task;
use aya_ebpf::macros::{map, raw_tracepoint};
use aya_ebpf::maps::Array;
use aya_ebpf::programs::RawTracePointContext;
use profcol_ebpf_common::identify::{Answer, found};
use profcol_ebpf_common::mappings::{self, Miss};

use crate::kernel::{self, Kernel};
use crate::{maps, registers};

#[map(name = "answer")]
static ANSWER: Array<Answer> = Array::with_max_entries(1, 0);

/// The first word of the context is the address, or 0 where the second one is asked about: a place
/// where the registers may be.
#[raw_tracepoint]
pub fn identify(context: RawTracePointContext) -> i32 {
    // SAFETY: the loader passes two words.
    let (address, registers_at) = unsafe {
        let words = context.as_ptr() as *const u64;
        (*words, *words.add(1))
    };
    respond(address, registers_at);
    0
}

#[unsafe(no_mangle)]
#[inline(never)]
pub extern "C" fn respond(address: u64, registers_at: u64) -> u32 {
    let (Some(node), Some(settings), Some(answer)) =
        (maps::own_node(), maps::settings(), ANSWER.get_ptr_mut(0))
    else {
        return 0;
    };
    // SAFETY: the loader reads the answer after the run.
    let answer = unsafe { &mut *answer };
    // SAFETY: the helper has no conditions.
    let task = unsafe { bpf_get_current_task() };
    if address == 0 {
        if let Some(system_call) = registers::system_call(settings, task, registers_at) {
            answer.start = system_call;
            answer.found = found::REGISTERS;
        }
        return 0;
    }
    let mm = kernel::word(task + settings.layout.task_mm).unwrap_or(0);
    let mut kernel = Kernel { node };
    match mappings::find(&mut kernel, settings, mm, address) {
        Ok(mapping) => {
            answer.start = mapping.start;
            answer.end = mapping.end;
            answer.to_offset = mapping.to_offset;
            answer.id = mapping.id;
            answer.found = found::MAPPING;
        }
        Err(Miss::None) => answer.found = found::NOTHING,
        Err(Miss::Changing) => answer.found = found::CHANGING,
        Err(Miss::Unreadable) => answer.found = found::UNREADABLE,
    }
    0
}
