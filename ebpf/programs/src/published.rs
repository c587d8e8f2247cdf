//! Looks up mappings published by the loader.

use profcol_ebpf_common::mappings::Mapping;
use profcol_ebpf_common::published::{self, Area, Areas, ProcessImage};
use profcol_ebpf_common::reason::EndReason;

use crate::maps::{AREAS, IMAGE_AREAS};
use crate::scratch::{Scratch, ScratchHandle};
use crate::unwind::CONTINUE;

struct Published;

impl Areas for Published {
    #[inline(always)]
    fn area(&self, index: u32) -> Option<Area> {
        AREAS.get(index).copied()
    }
}

/// The loader finds out later whether the address is unmapped or its mapping not published yet.
const NOT_FOUND: u32 = EndReason::MappingsPending as u32;

/// Finds the mapping of the address.
#[unsafe(no_mangle)]
#[inline(never)]
pub extern "C" fn lookup_published(handle: ScratchHandle, address: u64) -> u32 {
    let Some(scratch) = Scratch::from_handle(handle) else {
        return NOT_FOUND;
    };
    let process = &scratch.sample.process;
    let image = ProcessImage {
        pid: process.pid,
        exec: process.exec,
    };
    // SAFETY: an entry that is overwritten concurrently is another version of the same image.
    let Some(areas_of_image) = (unsafe { IMAGE_AREAS.get(&image) }) else {
        return NOT_FOUND;
    };
    let areas_of_image = *areas_of_image;
    if areas_of_image.alive_at < process.started {
        return NOT_FOUND;
    }
    match published::search(&Published, &areas_of_image, address) {
        Ok(area) => {
            scratch.mapping = Mapping {
                start: area.start,
                end: area.end,
                offset_delta: area.offset.wrapping_sub(area.start),
                file: 0,
                id: area.id,
                has_code: true,
            };
            CONTINUE
        }
        Err(_) => NOT_FOUND,
    }
}
