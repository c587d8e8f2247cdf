//! Numbers for files, given at the first sample that meets them.

use aya_ebpf::bindings::BPF_NOEXIST;
use aya_ebpf::helpers::generated::bpf_ktime_get_boot_ns;
use profcol_ebpf_common::counter;
use profcol_ebpf_common::file::{FileEntry, FileId, TableRef, number};
use profcol_ebpf_common::record::{self, kind};

use crate::maps::{FILES, FREE_NUMBERS, RECORDS, count};
use crate::process;

/// A new file is worth waking the loader: until it has a table its samples are not whole.
const WAKEUP: u64 = 2;

/// The file's number and table; a file that is new is numbered and announced.
#[inline(always)]
pub fn entry(id: &FileId, start: u64, end: u64) -> FileEntry {
    if let Some(entry) = FILES.get_ptr_mut(id) {
        // SAFETY: the entry stays where it is while the program runs. Two CPUs may write the time
        // at once, and either is right.
        unsafe {
            (*entry).used = bpf_ktime_get_boot_ns();
            return *entry;
        }
    }
    let number = number_file(id, start, end).unwrap_or(number::UNNUMBERED);
    FileEntry {
        number,
        table: TableRef::PENDING,
        used: 0,
    }
}

#[inline(always)]
fn number_file(id: &FileId, start: u64, end: u64) -> Option<u32> {
    let Ok(Some(number)) = FREE_NUMBERS.pop() else {
        count(counter::NO_FREE_NUMBER);
        return None;
    };
    // SAFETY: the helper has no conditions.
    let used = unsafe { bpf_ktime_get_boot_ns() };
    let entry = FileEntry {
        number,
        table: TableRef::PENDING,
        used,
    };
    if FILES.insert(id, &entry, u64::from(BPF_NOEXIST)).is_err() {
        let _ = FREE_NUMBERS.push(&number, 0);
        // Another CPU was faster, or the map is full.
        let Some(entry) = FILES.get_ptr_mut(id) else {
            count(counter::NO_FREE_NUMBER);
            return None;
        };
        // SAFETY: as above.
        return Some(unsafe { (*entry).number });
    }
    let announced = record::File {
        kind: kind::FILE,
        number,
        id: *id,
        pid: process::ids().map_or(0, |ids| (ids >> 32) as u32),
        unused: 0,
        start,
        end,
    };
    if RECORDS.output::<record::File>(&announced, WAKEUP).is_err() {
        // Nobody was told, so the next sample has to try again.
        count(counter::RING_FULL_FILE);
        let _ = FILES.remove(id);
        let _ = FREE_NUMBERS.push(&number, 0);
        return None;
    }
    Some(number)
}
