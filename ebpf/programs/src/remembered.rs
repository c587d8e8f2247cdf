//! What earlier samples of a process found: for an address its frame and rule, and for a page of code
//! the rows of its table. Most stacks consist of frames that were just seen, or lie close to one.
//!
//! It holds as long as the epoch in which it was noted, which ends with each change of the process's
//! mappings, at the latest after nine seconds. That is less than the time for which the number of a
//! file and the memory of a table rest before they are used again, and often enough to see which
//! files are in use.

use profcol_ebpf_common::frame::Frame;
use profcol_ebpf_common::layout::{ABSENT, Layout};
use profcol_ebpf_common::record::Sample;
use profcol_ebpf_common::settings::{REMEMBERED_FOR_SHIFT, REMEMBERED_SHIFT};
use profcol_ebpf_common::table::PAGE_SIZE;

use crate::kernel;
use crate::maps;

/// None: nothing is remembered.
pub const NO_EPOCH: u64 = 0;

/// Set in every epoch and in no address.
const EPOCH: u64 = 1 << 63;

/// What something is remembered of, in one number.
#[derive(Clone, Copy)]
pub struct Key(u64);

impl Key {
    /// What the loader thinks of the process, which it may change within a second.
    pub fn process_at(nanoseconds: u64) -> Self {
        Self(nanoseconds >> 30 | 1 << 61)
    }

    /// What stands where a return address should be may be any number, also another one's key.
    pub fn is_address(number: u64) -> bool {
        number >> 61 == 0
    }

    pub fn address(address: u64) -> Self {
        Self(address)
    }

    /// No address has the bit, as with the one above.
    pub fn page_of(address: u64) -> Self {
        Self(address & !(PAGE_SIZE - 1) | 1 << 62)
    }
}

/// A place for something to remember.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Remembered {
    /// Epoch and key.
    tag: u64,
    pub frame: Frame,
    pub more: u64,
}

/// A number that no other process has, nor this one with other mappings.
#[inline(always)]
pub fn epoch(layout: &Layout, mm: u64, sample: &Sample) -> u64 {
    if layout.mm_changes == ABSENT {
        return NO_EPOCH;
    }
    let mut changes = 0u32;
    if mm != 0 && !kernel::read(mm + layout.mm_changes, &raw mut changes) {
        return NO_EPOCH;
    }
    let process = &sample.process;
    let mut epoch = mix(mm ^ process.started.rotate_left(32));
    epoch = mix(epoch ^ u64::from(changes) << 32 ^ u64::from(process.exec));
    mix(epoch ^ sample.time >> REMEMBERED_FOR_SHIFT) | EPOCH
}

impl Remembered {
    #[inline(always)]
    pub fn is_of(&self, epoch: u64, key: Key) -> bool {
        self.tag == epoch ^ key.0
    }

    #[inline(always)]
    pub fn note(&mut self, epoch: u64, key: Key, frame: Frame, more: u64) {
        *self = Self {
            tag: epoch ^ key.0,
            frame,
            more,
        };
    }
}

/// The place for what is remembered of the key; it may have something else.
#[inline(always)]
pub fn place(epoch: u64, cpu: u32, key: Key) -> Option<&'static mut Remembered> {
    if epoch == NO_EPOCH {
        return None;
    }
    let hash = (epoch ^ key.0).wrapping_mul(ODD);
    let place = (hash >> (64 - REMEMBERED_SHIFT)) as u32;
    let place = maps::REMEMBERED.get_ptr_mut((cpu << REMEMBERED_SHIFT) + place)?;
    // SAFETY: it is this CPU's own, and the program is not interrupted by itself.
    Some(unsafe { &mut *place })
}

const ODD: u64 = 0x9e37_79b9_7f4a_7c15;

#[inline(always)]
fn mix(value: u64) -> u64 {
    let value = value.wrapping_mul(ODD);
    value ^ value >> 32
}
