//! Looks up the file behind an address of the loader.
//!
//! The loader runs it on demand, in its own context: at start to verify that the VMA tree is read
//! correctly and to detect the offset of the user registers, later to verify that a file opened by path
//! is the sampled one.

use aya_ebpf::EbpfContext;
use aya_ebpf::helpers::generated::bpf_get_current_task;
use aya_ebpf::macros::{map, raw_tracepoint};
use aya_ebpf::maps::Array;
use aya_ebpf::programs::RawTracePointContext;
use profcol_ebpf_common::identify::{Identified, status};
use profcol_ebpf_common::mappings::{self, MappingError};

use crate::kernel::{self, Kernel};
use crate::{maps, registers};

#[map(name = "identified")]
static IDENTIFIED: Array<Identified> = Array::with_max_entries(1, 0);

/// The first word of the context is the address; if it is 0, the second one is an offset at which the
/// user registers may be.
#[raw_tracepoint]
pub fn identify(context: RawTracePointContext) -> i32 {
    // SAFETY: the loader passes two words.
    let (address, user_regs_offset) = unsafe {
        let words = context.as_ptr() as *const u64;
        (*words, *words.add(1))
    };
    run_identify(address, user_regs_offset);
    0
}

#[unsafe(no_mangle)]
#[inline(never)]
pub extern "C" fn run_identify(address: u64, user_regs_offset: u64) -> u32 {
    let (Some(node), Some(settings), Some(identified)) = (
        maps::identify_node(),
        maps::settings(),
        IDENTIFIED.get_ptr_mut(0),
    ) else {
        return 0;
    };
    // SAFETY: the loader reads the result after the run.
    let identified = unsafe { &mut *identified };
    // SAFETY: the helper has no preconditions.
    let task = unsafe { bpf_get_current_task() };
    if address == 0 {
        if let Some(system_call) = registers::current_syscall(settings, task, user_regs_offset) {
            identified.start = system_call;
            identified.status = status::REGISTERS;
        }
        return 0;
    }
    let mm = kernel::word(task + settings.layout.task_mm).unwrap_or(0);
    let mut kernel = Kernel { node };
    match mappings::find(&mut kernel, settings, mm, address) {
        Ok(mapping) => {
            identified.start = mapping.start;
            identified.end = mapping.end;
            identified.offset_delta = mapping.offset_delta;
            identified.id = mapping.id;
            identified.status = status::MAPPING;
        }
        Err(MappingError::NotMapped) => identified.status = status::NO_MAPPING,
        Err(MappingError::Changing) => identified.status = status::CHANGING,
        Err(MappingError::Unreadable) => identified.status = status::UNREADABLE,
    }
    0
}
