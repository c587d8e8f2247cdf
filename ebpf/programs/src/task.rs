//! What the kernel knows of a task.

use profcol_ebpf_common::layout::Layout;

use crate::kernel::word;

/// Flags of a task.
pub const EXITING: u64 = 0x4;
/// Forked, and no image of its own yet.
const NOT_EXECUTED: u64 = 0x40;
pub const KERNEL_THREAD: u64 = 0x20_0000;

#[inline(always)]
pub fn leader(layout: &Layout, task: u64) -> u64 {
    word(task + layout.task_leader).unwrap_or(task)
}

#[inline(always)]
pub fn parent(layout: &Layout, leader: u64) -> u32 {
    let parent = word(leader + layout.task_parent).unwrap_or(0);
    word(parent.wrapping_add(layout.task_tgid)).unwrap_or(0) as u32
}

/// 0 where the task gave up its namespaces already.
#[inline(always)]
pub fn mount_namespace(layout: &Layout, task: u64) -> u32 {
    let namespaces = word(task + layout.task_namespaces).unwrap_or(0);
    let namespace = word(namespaces.wrapping_add(layout.namespaces_mount)).unwrap_or(0);
    word(namespace.wrapping_add(layout.mount_namespace_number)).unwrap_or(0) as u32
}

/// The task's number in its own namespace of processes, and the namespace.
#[inline(always)]
pub fn own_pid(layout: &Layout, leader: u64) -> (u32, u32) {
    let pid = word(leader + layout.task_pid).unwrap_or(0);
    let level = word(pid.wrapping_add(layout.pid_level)).unwrap_or(0) as u32;
    let own = pid
        .wrapping_add(layout.pid_numbers)
        .wrapping_add(u64::from(level) * UPID);
    let namespace = word(own.wrapping_add(layout.upid_namespace)).unwrap_or(0);
    (
        word(own.wrapping_add(layout.upid_number)).unwrap_or(0) as u32,
        word(namespace.wrapping_add(layout.pid_namespace_number)).unwrap_or(0) as u32,
    )
}

/// The size of a `upid`: a number and a pointer.
const UPID: u64 = 16;

/// Whether the task is between two images: the registers are those of the old one, which may be gone.
///
/// Up to the switch, a task that forked still has the image of its parent, and it is the one that
/// its registers belong to. While the old image is torn down the new one has no stack yet; from then
/// on the task is marked as having executed. One that had executed before shows no sign at the
/// switch itself, so all its time inside execve counts.
#[inline(always)]
pub fn is_between_images(layout: &Layout, task: u64, flags: u64, mm: u64) -> bool {
    let bit = layout.task_in_exec;
    let in_exec = word(task.wrapping_add(bit >> 6 << 3)).unwrap_or(0) >> (bit & 63) & 1 != 0;
    let has_stack = word(mm + layout.mm_start_stack).unwrap_or(0) != 0;
    !has_stack || in_exec && flags & NOT_EXECUTED == 0
}
