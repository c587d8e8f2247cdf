//! Finds the mapping behind an address among those that the loader published.

use profcol_ebpf_common::mappings::Mapping;
use profcol_ebpf_common::published::{self, Area, Areas, Image};
use profcol_ebpf_common::reason::EndReason;

use crate::maps::{AREAS, STRETCHES};
use crate::scratch::{Lent, Scratch};
use crate::unwind::GO_ON;

struct Published;

impl Areas for Published {
    #[inline(always)]
    fn area(&self, index: u32) -> Option<Area> {
        AREAS.get(index).copied()
    }
}

/// Whether there is no such mapping or it is not published yet, the loader knows later.
const NOT_FOUND: u32 = EndReason::MappingsPending as u32;

/// Finds the mapping that holds the address.
#[unsafe(no_mangle)]
#[inline(never)]
pub extern "C" fn look_up(lent: Lent, address: u64) -> u32 {
    let Some(scratch) = Scratch::borrow(lent) else {
        return NOT_FOUND;
    };
    let process = &scratch.sample.process;
    let image = Image {
        pid: process.pid,
        exec: process.exec,
    };
    // SAFETY: an entry that is written over meanwhile leads to another stretch of the same image.
    let Some(stretch) = (unsafe { STRETCHES.get(&image) }) else {
        return NOT_FOUND;
    };
    let stretch = *stretch;
    if stretch.born < process.started {
        return NOT_FOUND;
    }
    match published::search(&Published, &stretch, address) {
        Ok(area) => {
            scratch.mapping = Mapping {
                start: area.start,
                end: area.end,
                to_offset: area.offset.wrapping_sub(area.start),
                file: 0,
                id: area.id,
                has_code: true,
            };
            GO_ON
        }
        Err(_) => NOT_FOUND,
    }
}
