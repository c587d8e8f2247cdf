//! Tells the loader which file is behind an address of its own.
//!
//! It is run on demand, in the loader's own context. With it the loader proves at start that the
//! kernel's tree is read rightly, and later that a file it opened by a path is the one that a
//! sample met.

use aya_ebpf::EbpfContext;
use aya_ebpf::helpers::generated::bpf_get_current_task;
use aya_ebpf::macros::{map, raw_tracepoint};
use aya_ebpf::maps::Array;
use aya_ebpf::programs::RawTracePointContext;
use profcol_ebpf_common::identify::{Answer, found};
use profcol_ebpf_common::mappings::{self, Miss};
use profcol_ebpf_common::reason::EndReason;

use crate::kernel::{self, Kernel, Node};
use crate::maps;

#[map(name = "answer")]
static ANSWER: Array<Answer> = Array::with_max_entries(1, 0);

/// The address is the first word of the context.
#[raw_tracepoint]
pub fn identify(context: RawTracePointContext) -> i32 {
    // SAFETY: the loader passes one word.
    let address = unsafe { *(context.as_ptr() as *const u64) };
    let Some(node) = maps::own_node() else {
        return 0;
    };
    find_own(node, address);
    0
}

#[unsafe(no_mangle)]
#[inline(never)]
pub extern "C" fn find_own(node: *mut Node, address: u64) -> u32 {
    let (false, Some(settings), Some(answer)) =
        (node.is_null(), maps::settings(), ANSWER.get_ptr_mut(0))
    else {
        return EndReason::NoRegisters as u32;
    };
    // SAFETY: the caller has the only reference; the loader reads the answer after the run.
    let (node, answer) = unsafe { (&mut *node, &mut *answer) };
    // SAFETY: the helper has no conditions.
    let task = unsafe { bpf_get_current_task() };
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
