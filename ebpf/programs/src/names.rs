//! Reads file paths, cgroup paths and arguments from the kernel.
//!
//! They are read at the first sample, since a short-lived process exits before user space could look
//! them up.

use aya_ebpf::helpers::generated::{
    bpf_probe_read_kernel_str, bpf_probe_read_user, bpf_ringbuf_output,
};
use profcol_ebpf_common::barrier_var;
use profcol_ebpf_common::record::{MAX_ARGUMENTS_BYTES, MAX_NAME_BYTES, MAX_NAMES_BYTES, Process};

use crate::kernel::word;
use crate::maps::{self, RECORDS};
use crate::scratch::{Scratch, ScratchHandle};

/// Path components and mounts up to the root.
const MAX_PATH_COMPONENTS: u32 = 24;
/// The kernel has about a dozen cgroup controllers.
const MAX_CONTROLLERS: u64 = 16;

/// Writes the path components of a `struct file`.
#[unsafe(no_mangle)]
#[inline(never)]
pub extern "C" fn write_path(handle: ScratchHandle, file: u64) -> u32 {
    let (Some(scratch), Some(settings)) = (Scratch::from_handle(handle), maps::settings()) else {
        return 0;
    };
    let layout = &settings.layout;
    scratch.names_bytes = 0;
    let mut dentry = word(file + layout.file_dentry).unwrap_or(0);
    let mut mount = word(file + layout.file_mount)
        .unwrap_or(0)
        .wrapping_sub(layout.mount_vfs);
    for _ in 0..MAX_PATH_COMPONENTS {
        if dentry == 0 {
            return 0;
        }
        if word(mount.wrapping_add(layout.mount_root)) == Some(dentry) {
            let above = word(mount.wrapping_add(layout.mount_parent)).unwrap_or(0);
            if above == mount {
                append_end(scratch);
                return 0;
            }
            dentry = word(mount.wrapping_add(layout.mount_mountpoint)).unwrap_or(0);
            mount = above;
            continue;
        }
        let name = word(dentry + layout.dentry_name).unwrap_or(0);
        let parent = word(dentry + layout.dentry_parent).unwrap_or(0);
        // The root of a file system that is not mounted.
        if parent == dentry || append(scratch.handle(), name) == 0 {
            return 0;
        }
        dentry = parent;
    }
    0
}

/// Writes the path components of a task's cgroup, in the hierarchy in which it is deepest. With hybrid
/// hierarchies, a container may be in those of cgroup v1 only.
#[unsafe(no_mangle)]
#[inline(never)]
pub extern "C" fn write_cgroup(handle: ScratchHandle, task: u64) -> u32 {
    let (Some(scratch), Some(settings)) = (Scratch::from_handle(handle), maps::settings()) else {
        return 0;
    };
    let layout = &settings.layout;
    scratch.names_bytes = 0;
    let groups = word(task.wrapping_add(layout.task_cgroups)).unwrap_or(0);
    let level = |cgroup: u64| {
        word(cgroup.wrapping_add(layout.cgroup_level)).map_or(0, |level| level as u32)
    };
    let (mut cgroup, mut deepest) = (0, 0);
    for controller in 0..MAX_CONTROLLERS {
        let at = layout.cgroups_subsys.wrapping_add(controller * 8);
        if at >= layout.cgroups_subsys_end {
            break;
        }
        let state = word(groups.wrapping_add(at)).unwrap_or(0);
        let found = word(state.wrapping_add(layout.subsys_cgroup)).unwrap_or(0);
        if level(found) > deepest {
            (cgroup, deepest) = (found, level(found));
        }
    }
    let unified = word(groups.wrapping_add(layout.cgroups_unified)).unwrap_or(0);
    if cgroup == 0 || level(unified) > deepest {
        cgroup = unified;
    }
    let mut node = word(cgroup.wrapping_add(layout.cgroup_kn)).unwrap_or(0);
    for _ in 0..MAX_PATH_COMPONENTS {
        if node == 0 {
            return 0;
        }
        let name = word(node.wrapping_add(layout.kernfs_name)).unwrap_or(0);
        if append(scratch.handle(), name) == 0 {
            return 0;
        }
        node = word(node.wrapping_add(layout.kernfs_parent)).unwrap_or(0);
    }
    0
}

/// Writes the arguments of the current process after the names and returns their length.
#[unsafe(no_mangle)]
#[inline(never)]
pub extern "C" fn write_arguments(handle: ScratchHandle) -> u32 {
    let (Some(scratch), Some(settings)) = (Scratch::from_handle(handle), maps::settings()) else {
        return 0;
    };
    let layout = &settings.layout;
    let start = word(scratch.mm + layout.mm_arg_start).unwrap_or(0);
    let end = word(scratch.mm + layout.mm_arg_end).unwrap_or(0);
    let names = barrier_var(scratch.names_bytes);
    if start >= end || names > (MAX_NAMES_BYTES + MAX_NAME_BYTES) as u64 {
        return 0;
    }
    let mut length = end - start;
    // If the second page is not resident, read the first one only.
    for _ in 0..2 {
        let bytes = barrier_var(length.min(MAX_ARGUMENTS_BYTES as u64));
        if bytes > MAX_ARGUMENTS_BYTES as u64 {
            return 0;
        }
        // SAFETY: there is room for the longest arguments after the longest names.
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

/// Sends the announcement and its names; false if the ring is full.
#[inline(always)]
pub fn send(scratch: &mut Scratch, flags: u64) -> bool {
    let mut names = barrier_var(scratch.names_bytes);
    let most = (MAX_NAMES_BYTES + MAX_NAME_BYTES + MAX_ARGUMENTS_BYTES) as u64;
    if names > most {
        names = most;
    }
    // SAFETY: the names directly follow the announcement, whose variants have the same size.
    let failed = unsafe {
        bpf_ringbuf_output(
            (&raw const RECORDS).cast_mut().cast(),
            (&raw mut scratch.announcement).cast(),
            size_of::<Process>() as u64 + names,
            flags,
        )
    };
    failed == 0
}

/// Returns 0 if the name does not fit or cannot be read.
#[unsafe(no_mangle)]
#[inline(never)]
pub extern "C" fn append(handle: ScratchHandle, name: u64) -> u32 {
    let Some(scratch) = Scratch::from_handle(handle) else {
        return 0;
    };
    if scratch.names_bytes >= MAX_NAMES_BYTES as u64 {
        return 0;
    }
    let place = barrier_var(scratch.names_bytes) as usize & (MAX_NAMES_BYTES - 1);
    // SAFETY: there is room for the longest name at the last offset.
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
        let place = barrier_var(scratch.names_bytes) as usize & (MAX_NAMES_BYTES - 1);
        // SAFETY: the mask bounds the index.
        unsafe { *scratch.names.as_mut_ptr().add(place) = 0 };
        scratch.names_bytes += 1;
    }
}
