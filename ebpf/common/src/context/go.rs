//! Goroutines: `runtime.g` of the current thread leads to its `runtime.m`, and that to the goroutine that it runs,
//! also while the thread is on its system or signal stack.

use super::{ContextMemory, Loss, MAX_LABELS};

/// How a goroutine keeps its labels.
pub mod labels {
    /// This is not a Go program.
    pub const NONE: u32 = 0;
    /// `map[string]string`, up to Go 1.23.
    pub const MAP: u32 = 1;
    /// A slice of pairs, since Go 1.24.
    pub const SLICE: u32 = 2;
}

/// Offsets of members, by Go version.
#[cfg_attr(feature = "host", derive(bytemuck::Pod, bytemuck::Zeroable))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Layout {
    /// Offset of the pointer to the current `g` from the thread pointer.
    pub tls: u64,
    /// `g.m`
    pub m: u32,
    /// `m.curg`
    pub current: u32,
    /// `g.goid`
    pub id: u32,
    /// `g.labels`
    pub labels: u32,
    /// One of [`labels`].
    pub form: u32,
    /// `g.sched.bp`
    pub frame_pointer: u32,
}

/// The goroutine that a thread runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Goroutine {
    pub id: u64,
    /// Address of its labels; 0 is none.
    pub labels: u64,
}

/// Where a goroutine continues that left its stack for the system stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Switch {
    Goroutine {
        pc: u64,
        sp: u64,
        fp: u64,
    },
    /// The scheduler runs no goroutine.
    Scheduler,
}

const WORD: u64 = 8;
/// `m.g0`, whose stack is the system stack.
const SYSTEM: u64 = 0;
/// `g.sched`: the stack pointer and the program counter.
const SCHED_SP: u64 = 56;
const SCHED_PC: u64 = 64;
/// A string is an address and a length.
const STRING: u64 = 16;

/// `hmap`: the number of entries, the logarithm of the number of buckets, the buckets.
const MAP_FLAGS: u64 = 8;
const MAP_BUCKETS: u64 = 16;
/// A bucket: the upper byte of each hash, the keys, the values, the overflow bucket.
const SLOTS: u64 = 8;
const KEYS: u64 = SLOTS;
const VALUES: u64 = KEYS + SLOTS * STRING;
const BUCKET: u64 = VALUES + SLOTS * STRING + WORD;
/// Smaller values mark empty slots.
const MIN_TOP_HASH: u64 = 5;
/// A map of [`MAX_LABELS`] entries has no more.
const MAX_BUCKETS: u64 = 4;

impl Layout {
    pub fn is_go(&self) -> bool {
        self.form != labels::NONE
    }

    /// None if the thread runs no goroutine.
    #[inline(always)]
    pub fn goroutine(
        &self,
        thread_pointer: u64,
        memory: &mut impl ContextMemory,
    ) -> Option<Goroutine> {
        let g = memory.word(thread_pointer.wrapping_add(self.tls))?;
        if g == 0 {
            return None;
        }
        let m = memory.word(g.wrapping_add(self.m.into()))?;
        let current = memory.word(m.wrapping_add(self.current.into()))?;
        if m == 0 || current == 0 {
            return None;
        }
        Some(Goroutine {
            id: memory.word(current.wrapping_add(self.id.into()))?,
            labels: memory.word(current.wrapping_add(self.labels.into()))?,
        })
    }

    /// The place at which the goroutine left its stack, if the thread is on the system stack.
    #[inline(always)]
    pub fn switch(&self, thread_pointer: u64, memory: &mut impl ContextMemory) -> Option<Switch> {
        let g = memory.word(thread_pointer.wrapping_add(self.tls))?;
        let m = memory.word(g.wrapping_add(self.m.into()))?;
        if g == 0 || memory.word(m.wrapping_add(SYSTEM))? != g {
            return None;
        }
        let current = memory.word(m.wrapping_add(self.current.into()))?;
        if current == 0 {
            return Some(Switch::Scheduler);
        }
        let sp = memory.word(current.wrapping_add(SCHED_SP))?;
        let pc = memory.word(current.wrapping_add(SCHED_PC))?;
        let fp = memory.word(current.wrapping_add(self.frame_pointer.into()))?;
        (sp != 0 && pc != 0).then_some(Switch::Goroutine { pc, sp, fp })
    }
}

/// Adds labels from a slice.
#[inline(always)]
pub fn add_slice(labels: u64, memory: &mut impl ContextMemory) {
    // One after the other: old verifiers do not see that both were read.
    let Some(first) = memory.word(labels) else {
        return memory.lose(Loss::Unreadable);
    };
    let Some(count) = memory.word(labels.wrapping_add(WORD)) else {
        return memory.lose(Loss::Unreadable);
    };
    for index in 0..u64::from(MAX_LABELS) {
        if index >= count {
            return;
        }
        let key = first.wrapping_add(index * 2 * STRING);
        if !memory.load_label(key, key.wrapping_add(STRING)) {
            return memory.lose(Loss::Unreadable);
        }
        memory.add_label();
    }
    if count > u64::from(MAX_LABELS) {
        memory.lose(Loss::TooMany);
    }
}

/// Adds labels from a map.
#[inline(always)]
pub fn add_map(labels: u64, memory: &mut impl ContextMemory) {
    let Some(map) = memory.word(labels) else {
        return memory.lose(Loss::Unreadable);
    };
    if map == 0 {
        return;
    }
    let Some(count) = memory.word(map) else {
        return memory.lose(Loss::Unreadable);
    };
    let Some(flags) = memory.word(map.wrapping_add(MAP_FLAGS)) else {
        return memory.lose(Loss::Unreadable);
    };
    let Some(buckets) = memory.word(map.wrapping_add(MAP_BUCKETS)) else {
        return memory.lose(Loss::Unreadable);
    };
    let shift = flags >> 8 & 0xff;
    for slot in 0..MAX_BUCKETS * SLOTS {
        if (slot / SLOTS) >> (shift & 63) != 0 || memory.added() >= count {
            break;
        }
        if memory.added() >= u64::from(MAX_LABELS) {
            return memory.lose(Loss::TooMany);
        }
        let bucket = buckets.wrapping_add(slot / SLOTS * BUCKET);
        let Some(hashes) = memory.word(bucket) else {
            return memory.lose(Loss::Unreadable);
        };
        let slot = slot % SLOTS;
        if hashes >> (slot * 8) & 0xff < MIN_TOP_HASH {
            continue;
        }
        let key = bucket.wrapping_add(KEYS + slot * STRING);
        let value = bucket.wrapping_add(VALUES + slot * STRING);
        if !memory.load_label(key, value) {
            return memory.lose(Loss::Unreadable);
        }
        memory.add_label();
    }
    if memory.added() < count {
        memory.lose(Loss::TooMany);
    }
}
