//! A cache of lookups: frame and rule by address, and table rows by page. Most stacks consist of frames
//! that were seen recently, or are close to one.
//!
//! An entry is valid for its epoch, which ends with each change of the process's mappings, and after
//! nine seconds at the latest. That is shorter than the time before file numbers and table memory are
//! reused, and often enough to track which files are in use.

use profcol_ebpf_common::frame::Frame;
use profcol_ebpf_common::layout::{ABSENT, Layout};
use profcol_ebpf_common::record::Sample;
use profcol_ebpf_common::settings::{FRAME_CACHE_SHIFT, FRAME_CACHE_TTL_SHIFT};
use profcol_ebpf_common::table::PAGE_SIZE;

use crate::kernel;
use crate::maps;

/// Disables the cache.
pub const NO_EPOCH: u64 = 0;

/// Set in every epoch, and in no address.
const EPOCH: u64 = 1 << 63;

/// The key of a cache entry.
#[derive(Clone, Copy)]
pub struct Key(u64);

impl Key {
    /// The state of the process, valid for about a second: the loader may change it.
    pub fn process_at(nanoseconds: u64) -> Self {
        Self(nanoseconds >> 30 | 1 << 61)
    }

    /// A corrupt return address could be any number, also a key of another kind.
    pub fn is_address(number: u64) -> bool {
        number >> 61 == 0
    }

    pub fn address(address: u64) -> Self {
        Self(address)
    }

    /// No address has this bit.
    pub fn page_of(address: u64) -> Self {
        Self(address & !(PAGE_SIZE - 1) | 1 << 62)
    }
}

/// A slot of the cache.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct CacheEntry {
    /// Epoch and key.
    tag: u64,
    pub frame: Frame,
    pub value: u64,
}

/// Unique per process and state of its mappings.
#[inline(always)]
pub fn epoch(layout: &Layout, mm: u64, sample: &Sample) -> u64 {
    if layout.mm_seq == ABSENT {
        return NO_EPOCH;
    }
    let mut changes = 0u32;
    if mm != 0 && !kernel::read(mm + layout.mm_seq, &raw mut changes) {
        return NO_EPOCH;
    }
    let process = &sample.process;
    let mut epoch = mix(mm ^ process.started.rotate_left(32));
    epoch = mix(epoch ^ u64::from(changes) << 32 ^ u64::from(process.exec));
    mix(epoch ^ sample.time >> FRAME_CACHE_TTL_SHIFT) | EPOCH
}

impl CacheEntry {
    #[inline(always)]
    pub fn matches(&self, epoch: u64, key: Key) -> bool {
        self.tag == epoch ^ key.0
    }

    #[inline(always)]
    pub fn store(&mut self, epoch: u64, key: Key, frame: Frame, value: u64) {
        *self = Self {
            tag: epoch ^ key.0,
            frame,
            value,
        };
    }
}

/// The slot for the key; it may hold another key.
#[inline(always)]
pub fn slot(epoch: u64, cpu: u32, key: Key) -> Option<&'static mut CacheEntry> {
    if epoch == NO_EPOCH {
        return None;
    }
    let hash = (epoch ^ key.0).wrapping_mul(HASH_MULTIPLIER);
    let slot = (hash >> (64 - FRAME_CACHE_SHIFT)) as u32;
    let slot = maps::FRAME_CACHE.get_ptr_mut((cpu << FRAME_CACHE_SHIFT) + slot)?;
    // SAFETY: the slot belongs to this CPU, and the program does not interrupt itself.
    Some(unsafe { &mut *slot })
}

const HASH_MULTIPLIER: u64 = 0x9e37_79b9_7f4a_7c15;

#[inline(always)]
fn mix(value: u64) -> u64 {
    let value = value.wrapping_mul(HASH_MULTIPLIER);
    value ^ value >> 32
}
