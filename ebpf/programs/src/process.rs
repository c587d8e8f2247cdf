//! Which process runs here, and whether the loader wants it.

use aya_ebpf::bindings::bpf_pidns_info;
use aya_ebpf::helpers::generated::{bpf_get_current_pid_tgid, bpf_get_ns_current_pid_tgid};
use profcol_ebpf_common::frame::Frame;
use profcol_ebpf_common::record::Sample;

use crate::maps::{self, PROCESSES};
use crate::remembered::{self, Key};

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

/// One of [`known`](profcol_ebpf_common::record::known), or 0 for a process that the loader was not told of.
#[inline(always)]
pub fn known(epoch: u64, sample: &Sample) -> u32 {
    let key = Key::process_at(sample.time);
    let place = remembered::place(epoch, sample.cpu, key);
    if let Some(place) = &place
        && place.is_of(epoch, key)
    {
        return place.more as u32;
    }
    let process = sample.process;
    // SAFETY: it is one word.
    let Some(&known) = (unsafe { PROCESSES.get(&process) }) else {
        return 0;
    };
    if let Some(place) = place {
        place.note(epoch, key, Frame(0), u64::from(known));
    }
    known
}
