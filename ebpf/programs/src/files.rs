//! Assigns numbers to files at their first sample.

use aya_ebpf::bindings::BPF_NOEXIST;
use aya_ebpf::helpers::generated::{bpf_get_current_task, bpf_ktime_get_boot_ns};
use profcol_ebpf_common::barrier_var;
use profcol_ebpf_common::counter;
use profcol_ebpf_common::file::{FileEntry, FileId, TableRef, file_number};
use profcol_ebpf_common::record::{self, kind};

use crate::maps::{self, FILES, FREE_NUMBERS, count};
use crate::names;
use crate::process;
use crate::scratch::{Scratch, ScratchHandle};
use crate::task;

/// A new file wakes the loader: until it has a table, its stacks are truncated.
const BPF_RB_FORCE_WAKEUP: u64 = 2;

/// A file mapping in a sample.
pub struct MappedFile {
    pub id: FileId,
    /// The kernel's `struct file`; 0 is none.
    pub file: u64,
    pub start: u64,
    pub end: u64,
}

/// The file's number and table; a new file is numbered and announced.
#[inline(always)]
pub fn entry(scratch: &mut Scratch, mapped: &MappedFile) -> FileEntry {
    let Some(slot) = FILES.get_ptr_mut(&mapped.id) else {
        return FileEntry {
            number: number_file(scratch, mapped).unwrap_or(file_number::MAP_FULL),
            table: TableRef::PENDING,
            used: 0,
        };
    };
    // SAFETY: the entry does not move while the program runs. CPUs may write it concurrently: either
    // time is right, and the loader ignores the second announcement.
    let slot = unsafe { &mut *slot };
    slot.used = now();
    let mut entry = *slot;
    if entry.table == TableRef::UNOPENED {
        entry.table = TableRef::PENDING;
        if announce(scratch, mapped, entry.number) {
            slot.table = TableRef::PENDING;
        }
    }
    entry
}

#[inline(always)]
fn number_file(scratch: &mut Scratch, mapped: &MappedFile) -> Option<u32> {
    let Ok(Some(number)) = FREE_NUMBERS.pop() else {
        count(counter::NO_FREE_FILE_NUMBER);
        return None;
    };
    let entry = FileEntry {
        number,
        table: TableRef::PENDING,
        used: now(),
    };
    if FILES
        .insert(&mapped.id, &entry, u64::from(BPF_NOEXIST))
        .is_err()
    {
        let _ = FREE_NUMBERS.push(&number, 0);
        // Another CPU inserted it, or the map is full.
        let Some(entry) = FILES.get_ptr_mut(&mapped.id) else {
            count(counter::NO_FREE_FILE_NUMBER);
            return None;
        };
        // SAFETY: as above.
        return Some(unsafe { (*entry).number });
    }
    if !announce(scratch, mapped, number) {
        // The ring is full: the next sample tries again.
        let _ = FILES.remove(&mapped.id);
        let _ = FREE_NUMBERS.push(&number, 0);
        return None;
    }
    Some(number)
}

#[inline(always)]
fn announce(scratch: &mut Scratch, mapped: &MappedFile, number: u32) -> bool {
    scratch.announcement.file = record::File {
        kind: kind::FILE,
        number,
        id: mapped.id,
        start: mapped.start,
        end: mapped.end,
        time: now(),
        ..record::File::default()
    };
    scratch.names_bytes = 0;
    // Not called by `send_file`: the stacks of nested calls add up.
    if mapped.file != 0 {
        names::write_path(scratch.handle(), mapped.file);
    }
    barrier_var(u64::from(send_file(scratch.handle()))) != 0
}

/// Adds the process to the announcement of a file and sends it.
#[unsafe(no_mangle)]
#[inline(never)]
pub extern "C" fn send_file(handle: ScratchHandle) -> u32 {
    let (Some(scratch), Some(settings)) = (Scratch::from_handle(handle), maps::settings()) else {
        return 0;
    };
    let ids = process::ids().unwrap_or(0);
    // SAFETY: the helper has no preconditions.
    let current = unsafe { bpf_get_current_task() };
    let layout = &settings.layout;
    let names_bytes = scratch.names_bytes as u32;
    // SAFETY: the caller initialized it as a file; any bytes are valid.
    let announcement = unsafe { &mut scratch.announcement.file };
    announcement.pid = (ids >> 32) as u32;
    announcement.parent = task::parent(layout, task::leader(layout, current));
    announcement.mount_namespace = task::mount_namespace(layout, current);
    announcement.names_bytes = names_bytes;
    if !names::send(scratch, BPF_RB_FORCE_WAKEUP) {
        count(counter::RING_FULL_FILE);
        return 0;
    }
    1
}

#[inline(always)]
fn now() -> u64 {
    // SAFETY: the helper has no preconditions.
    unsafe { bpf_ktime_get_boot_ns() }
}
