//! The current process, and whether it is sampled.

use aya_ebpf::bindings::bpf_pidns_info;
use aya_ebpf::helpers::generated::{bpf_get_current_pid_tgid, bpf_get_ns_current_pid_tgid};
use profcol_ebpf_common::frame::Frame;
use profcol_ebpf_common::record::{Sample, process_state};

use crate::context;
use crate::frame_cache::{self, Key};
use crate::maps::{self, PROCESSES};

/// TGID in the upper half and TID in the lower, in the loader's PID namespace. None for processes of
/// other namespaces if only one is sampled.
#[inline(always)]
pub fn ids() -> Option<u64> {
    let settings = maps::settings()?;
    if settings.namespace_inode == 0 {
        // SAFETY: the helper has no preconditions.
        return Some(unsafe { bpf_get_current_pid_tgid() });
    }
    let mut ids = bpf_pidns_info { pid: 0, tgid: 0 };
    // SAFETY: the helper writes within the given size.
    let failed = unsafe {
        bpf_get_ns_current_pid_tgid(
            settings.namespace_device,
            settings.namespace_inode,
            &raw mut ids,
            size_of::<bpf_pidns_info>() as u32,
        )
    };
    (failed == 0).then_some(u64::from(ids.tgid) << 32 | u64::from(ids.pid))
}

/// See [`process_state`](profcol_ebpf_common::record::process_state); 0 if the process was not announced.
#[inline(always)]
pub fn process_state(epoch: u64, sample: &Sample) -> u32 {
    let key = Key::process_at(sample.time);
    let slot = frame_cache::slot(epoch, sample.cpu, key);
    if let Some(slot) = &slot
        && slot.matches(epoch, key)
    {
        return slot.value as u32;
    }
    let process = sample.process;
    // SAFETY: a word is read atomically.
    let Some(&known) = (unsafe { PROCESSES.get(&process) }) else {
        return 0;
    };
    let process_state = known | context::flag(&process, process_state::executable(known));
    if let Some(slot) = slot {
        slot.store(epoch, key, Frame(0), u64::from(process_state));
    }
    process_state
}
