//! Names from the kernel's own records: of a file's path and of a process's cgroup.
//!
//! Read at the first sample, since a process that lives for milliseconds is gone before anybody
//! could look it up.

use aya_ebpf::helpers::generated::{
    bpf_probe_read_kernel_str, bpf_probe_read_user, bpf_ringbuf_output,
};
use profcol_ebpf_common::hide;
use profcol_ebpf_common::record::{MAX_ARGUMENTS_BYTES, MAX_NAME_BYTES, MAX_NAMES_BYTES, Process};

use crate::kernel::word;
use crate::maps::{self, RECORDS};
use crate::scratch::{Lent, Scratch};

/// Names and mounts on the way up to a root.
const STEPS: u32 = 24;
/// Controllers of cgroups; the kernel has about a dozen.
const CONTROLLERS: u64 = 16;

/// Writes the names on the path of a `struct file`.
#[unsafe(no_mangle)]
#[inline(never)]
pub extern "C" fn note_path(lent: Lent, file: u64) -> u32 {
    let (Some(scratch), Some(settings)) = (Scratch::borrow(lent), maps::settings()) else {
        return 0;
    };
    let layout = &settings.layout;
    scratch.names_bytes = 0;
    let mut dentry = word(file + layout.file_dentry).unwrap_or(0);
    let mut mount = word(file + layout.file_mount)
        .unwrap_or(0)
        .wrapping_sub(layout.mount_vfs);
    for _ in 0..STEPS {
        if dentry == 0 {
            return 0;
        }
        if word(mount.wrapping_add(layout.mount_root)) == Some(dentry) {
            let above = word(mount.wrapping_add(layout.mount_parent)).unwrap_or(0);
            if above == mount {
                append_end(scratch);
                return 0;
            }
            dentry = word(mount.wrapping_add(layout.mount_point)).unwrap_or(0);
            mount = above;
            continue;
        }
        let name = word(dentry + layout.dentry_name).unwrap_or(0);
        let parent = word(dentry + layout.dentry_parent).unwrap_or(0);
        // The root of a file system that is mounted nowhere.
        if parent == dentry || append(scratch.lend(), name) == 0 {
            return 0;
        }
        dentry = parent;
    }
    0
}

/// Writes the names on the way to a task's cgroup: of those that it has in all hierarchies the deepest. Where there are
/// hierarchies of both versions, a container may stand in those of the first alone.
#[unsafe(no_mangle)]
#[inline(never)]
pub extern "C" fn note_cgroup(lent: Lent, task: u64) -> u32 {
    let (Some(scratch), Some(settings)) = (Scratch::borrow(lent), maps::settings()) else {
        return 0;
    };
    let layout = &settings.layout;
    scratch.names_bytes = 0;
    let groups = word(task.wrapping_add(layout.task_cgroups)).unwrap_or(0);
    let level = |cgroup: u64| {
        word(cgroup.wrapping_add(layout.cgroup_level)).map_or(0, |level| level as u32)
    };
    let (mut cgroup, mut deepest) = (0, 0);
    for controller in 0..CONTROLLERS {
        let at = layout.cgroups_controllers.wrapping_add(controller * 8);
        if at >= layout.cgroups_behind_controllers {
            break;
        }
        let state = word(groups.wrapping_add(at)).unwrap_or(0);
        let found = word(state.wrapping_add(layout.controller_cgroup)).unwrap_or(0);
        if level(found) > deepest {
            (cgroup, deepest) = (found, level(found));
        }
    }
    let unified = word(groups.wrapping_add(layout.cgroups_unified)).unwrap_or(0);
    if cgroup == 0 || level(unified) > deepest {
        cgroup = unified;
    }
    let mut node = word(cgroup.wrapping_add(layout.cgroup_node)).unwrap_or(0);
    for _ in 0..STEPS {
        if node == 0 {
            return 0;
        }
        let name = word(node.wrapping_add(layout.node_name)).unwrap_or(0);
        if append(scratch.lend(), name) == 0 {
            return 0;
        }
        node = word(node.wrapping_add(layout.node_parent)).unwrap_or(0);
    }
    0
}

/// Writes the arguments of the current process behind the names, as they stand in its own memory, and
/// returns how many bytes they are.
#[unsafe(no_mangle)]
#[inline(never)]
pub extern "C" fn note_arguments(lent: Lent) -> u32 {
    let (Some(scratch), Some(settings)) = (Scratch::borrow(lent), maps::settings()) else {
        return 0;
    };
    let layout = &settings.layout;
    let start = word(scratch.mm + layout.mm_arguments).unwrap_or(0);
    let end = word(scratch.mm + layout.mm_arguments_end).unwrap_or(0);
    let names = hide(scratch.names_bytes);
    if start >= end || names > (MAX_NAMES_BYTES + MAX_NAME_BYTES) as u64 {
        return 0;
    }
    let mut length = end - start;
    // A page that is not in memory takes nothing with it but itself.
    for _ in 0..2 {
        let bytes = hide(length.min(MAX_ARGUMENTS_BYTES as u64));
        if bytes > MAX_ARGUMENTS_BYTES as u64 {
            return 0;
        }
        // SAFETY: behind the longest names there is room for the longest arguments.
        let failed = unsafe {
            bpf_probe_read_user(
                scratch.names.as_mut_ptr().add(names as usize).cast(),
                bytes as u32,
                start as *const _,
            )
        };
        if failed == 0 {
            scratch.names_bytes += bytes;
            return bytes as u32;
        }
        length = length.min(PAGE - start % PAGE);
    }
    0
}

const PAGE: u64 = 4096;

/// Sends what is told with the names behind it; false where the ring has no room.
#[inline(always)]
pub fn send(scratch: &mut Scratch, flags: u64) -> bool {
    let mut names = hide(scratch.names_bytes);
    let most = (MAX_NAMES_BYTES + MAX_NAME_BYTES + MAX_ARGUMENTS_BYTES) as u64;
    if names > most {
        names = most;
    }
    // SAFETY: the names stand right behind what is told, which has one size whatever it is.
    let failed = unsafe {
        bpf_ringbuf_output(
            (&raw const RECORDS).cast_mut().cast(),
            (&raw mut scratch.told).cast(),
            size_of::<Process>() as u64 + names,
            flags,
        )
    };
    failed == 0
}

/// 0 where there is no room for it, or it cannot be read.
#[unsafe(no_mangle)]
#[inline(never)]
pub extern "C" fn append(lent: Lent, name: u64) -> u32 {
    let Some(scratch) = Scratch::borrow(lent) else {
        return 0;
    };
    if scratch.names_bytes >= MAX_NAMES_BYTES as u64 {
        return 0;
    }
    let place = hide(scratch.names_bytes) as usize & (MAX_NAMES_BYTES - 1);
    // SAFETY: behind the last place there is room for the longest name.
    let read = unsafe {
        bpf_probe_read_kernel_str(
            scratch.names.as_mut_ptr().add(place).cast(),
            MAX_NAME_BYTES as u32,
            name as *const _,
        )
    };
    if read <= 0 {
        return 0;
    }
    scratch.names_bytes += read as u64;
    1
}

#[inline(always)]
fn append_end(scratch: &mut Scratch) {
    if scratch.names_bytes < MAX_NAMES_BYTES as u64 {
        let place = hide(scratch.names_bytes) as usize & (MAX_NAMES_BYTES - 1);
        // SAFETY: the mask bounds the place.
        unsafe { *scratch.names.as_mut_ptr().add(place) = 0 };
        scratch.names_bytes += 1;
    }
}
