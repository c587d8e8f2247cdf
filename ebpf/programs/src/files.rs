//! Numbers for files, given at the first sample that meets them.

use aya_ebpf::bindings::BPF_NOEXIST;
use aya_ebpf::helpers::generated::{bpf_get_current_task, bpf_ktime_get_boot_ns};
use profcol_ebpf_common::counter;
use profcol_ebpf_common::file::{FileEntry, FileId, TableRef, number};
use profcol_ebpf_common::hide;
use profcol_ebpf_common::record::{self, kind};

use crate::maps::{self, FILES, FREE_NUMBERS, count};
use crate::names;
use crate::process;
use crate::scratch::{Lent, Scratch};
use crate::task;

/// A new file is worth waking the loader: until it has a table its samples are not whole.
const WAKEUP: u64 = 2;

/// A file as a sample met it.
pub struct Met {
    pub id: FileId,
    /// The kernel's `struct file`; 0 is none.
    pub file: u64,
    pub start: u64,
    pub end: u64,
}

/// The file's number and table; a file that is new is numbered and announced.
#[inline(always)]
pub fn entry(scratch: &mut Scratch, met: &Met) -> FileEntry {
    let Some(known) = FILES.get_ptr_mut(&met.id) else {
        return FileEntry {
            number: number_file(scratch, met).unwrap_or(number::UNNUMBERED),
            table: TableRef::PENDING,
            used: 0,
        };
    };
    // SAFETY: the entry stays where it is while the program runs. Two CPUs may write to it at once:
    // of the times either is right, and of two announcements the loader heeds the first.
    let known = unsafe { &mut *known };
    known.used = now();
    let mut entry = *known;
    if entry.table == TableRef::UNOPENED {
        entry.table = TableRef::PENDING;
        if announce(scratch, met, entry.number) {
            known.table = TableRef::PENDING;
        }
    }
    entry
}

#[inline(always)]
fn number_file(scratch: &mut Scratch, met: &Met) -> Option<u32> {
    let Ok(Some(number)) = FREE_NUMBERS.pop() else {
        count(counter::NO_FREE_NUMBER);
        return None;
    };
    let entry = FileEntry {
        number,
        table: TableRef::PENDING,
        used: now(),
    };
    if FILES
        .insert(&met.id, &entry, u64::from(BPF_NOEXIST))
        .is_err()
    {
        let _ = FREE_NUMBERS.push(&number, 0);
        // Another CPU was faster, or the map is full.
        let Some(entry) = FILES.get_ptr_mut(&met.id) else {
            count(counter::NO_FREE_NUMBER);
            return None;
        };
        // SAFETY: as above.
        return Some(unsafe { (*entry).number });
    }
    if !announce(scratch, met, number) {
        // Nobody was told, so the next sample has to try again.
        let _ = FILES.remove(&met.id);
        let _ = FREE_NUMBERS.push(&number, 0);
        return None;
    }
    Some(number)
}

#[inline(always)]
fn announce(scratch: &mut Scratch, met: &Met, number: u32) -> bool {
    scratch.told.file = record::File {
        kind: kind::FILE,
        number,
        id: met.id,
        start: met.start,
        end: met.end,
        time: now(),
        ..record::File::default()
    };
    scratch.names_bytes = 0;
    // Not called by what tells of it: the stacks of functions that call each other add up.
    if met.file != 0 {
        names::note_path(scratch.lend(), met.file);
    }
    hide(u64::from(tell(scratch.lend()))) != 0
}

/// Adds to what is told of a file and its path what is known of its process, and sends it.
#[unsafe(no_mangle)]
#[inline(never)]
pub extern "C" fn tell(lent: Lent) -> u32 {
    let (Some(scratch), Some(settings)) = (Scratch::borrow(lent), maps::settings()) else {
        return 0;
    };
    let ids = process::ids().unwrap_or(0);
    // SAFETY: the helper has no conditions.
    let current = unsafe { bpf_get_current_task() };
    let layout = &settings.layout;
    let names_bytes = scratch.names_bytes as u32;
    // SAFETY: the caller wrote the file's part; any bytes are valid.
    let told = unsafe { &mut scratch.told.file };
    told.pid = (ids >> 32) as u32;
    told.parent = task::parent(layout, task::leader(layout, current));
    told.mount_namespace = task::mount_namespace(layout, current);
    told.names_bytes = names_bytes;
    if !names::send(scratch, WAKEUP) {
        count(counter::RING_FULL_FILE);
        return 0;
    }
    1
}

#[inline(always)]
fn now() -> u64 {
    // SAFETY: the helper has no conditions.
    unsafe { bpf_ktime_get_boot_ns() }
}
