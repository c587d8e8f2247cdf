//! Which process runs here, and whether the loader wants it.

use aya_ebpf::bindings::bpf_pidns_info;
use aya_ebpf::helpers::generated::{bpf_get_current_pid_tgid, bpf_get_ns_current_pid_tgid};
use profcol_ebpf_common::record::{ProcessKey, known};

use crate::maps::{self, PROCESSES};

/// The process, in the upper half, and the thread, as the loader's PID namespace has them. None for
/// those of another namespace, where only one is sampled.
#[inline(always)]
pub fn ids() -> Option<u64> {
    let settings = maps::settings()?;
    if settings.namespace_inode == 0 {
        // SAFETY: the helper has no conditions.
        return Some(unsafe { bpf_get_current_pid_tgid() });
    }
    let mut ids = bpf_pidns_info { pid: 0, tgid: 0 };
    // SAFETY: the helper writes no further than it is told.
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

#[inline(always)]
pub fn is_excluded(process: &ProcessKey) -> bool {
    let key = *process;
    // SAFETY: it is one word.
    unsafe { PROCESSES.get(&key) }.is_some_and(|&known| known == known::EXCLUDED)
}
