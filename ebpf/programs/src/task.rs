//! Members of `task_struct`.

use profcol_ebpf_common::layout::Layout;

use crate::kernel::word;

/// `task_struct.flags`.
pub const PF_EXITING: u64 = 0x4;
/// Forked, but did not exec yet.
const PF_FORKNOEXEC: u64 = 0x40;
pub const PF_KTHREAD: u64 = 0x20_0000;

#[inline(always)]
pub fn leader(layout: &Layout, task: u64) -> u64 {
    word(task + layout.task_leader).unwrap_or(task)
}

#[inline(always)]
pub fn parent(layout: &Layout, leader: u64) -> u32 {
    let parent = word(leader + layout.task_parent).unwrap_or(0);
    word(parent.wrapping_add(layout.task_tgid)).unwrap_or(0) as u32
}

/// 0 if the task already left its namespaces.
#[inline(always)]
pub fn mount_namespace(layout: &Layout, task: u64) -> u32 {
    let namespaces = word(task + layout.task_nsproxy).unwrap_or(0);
    let namespace = word(namespaces.wrapping_add(layout.nsproxy_mnt_ns)).unwrap_or(0);
    word(namespace.wrapping_add(layout.mount_namespace_number)).unwrap_or(0) as u32
}

/// The task's PID in its own PID namespace, and the namespace's inode.
#[inline(always)]
pub fn own_pid(layout: &Layout, leader: u64) -> (u32, u32) {
    let pid = word(leader + layout.task_pid).unwrap_or(0);
    let level = word(pid.wrapping_add(layout.pid_level)).unwrap_or(0) as u32;
    let own = pid
        .wrapping_add(layout.pid_numbers)
        .wrapping_add(u64::from(level) * UPID);
    let namespace = word(own.wrapping_add(layout.upid_namespace)).unwrap_or(0);
    (
        word(own.wrapping_add(layout.upid_nr)).unwrap_or(0) as u32,
        word(namespace.wrapping_add(layout.pid_namespace_number)).unwrap_or(0) as u32,
    )
}

/// The size of a `upid`: a number and a pointer.
const UPID: u64 = 16;

/// Whether the task is inside execve: its registers are of the old image, which may be gone.
///
/// A forked task keeps its parent's image, to which its registers belong, until execve replaces it.
/// While the old image is torn down, the new one has no stack yet; then `PF_FORKNOEXEC` is cleared. A
/// task that had exec'd before does not show the replacement, so its whole execve counts.
#[inline(always)]
pub fn is_in_exec(layout: &Layout, task: u64, flags: u64, mm: u64) -> bool {
    let bit = layout.task_in_exec;
    let in_exec = word(task.wrapping_add(bit >> 6 << 3)).unwrap_or(0) >> (bit & 63) & 1 != 0;
    let has_stack = word(mm + layout.mm_start_stack).unwrap_or(0) != 0;
    !has_stack || in_exec && flags & PF_FORKNOEXEC == 0
}
