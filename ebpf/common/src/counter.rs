//! What the programs count beside the reasons, which have the first places.

use crate::reason::REASONS;

/// Places for counters: a power of two.
pub const COUNTERS: usize = 64;
const _: () = assert!(REASONS <= COUNTERS / 2);

pub const SAMPLES: u32 = 32;
/// Records that found no room in the ring.
pub const RING_FULL_SAMPLE: u32 = 33;
pub const RING_FULL_PROCESS: u32 = 34;
pub const RING_FULL_FILE: u32 = 35;
/// Files that got no number since all are taken.
pub const NO_FREE_NUMBER: u32 = 36;
/// Ticks in processes that the loader does not want; they are no samples.
pub const EXCLUDED: u32 = 37;
/// How long the program ran for all samples.
pub const NANOSECONDS: u32 = 38;
/// Samples that were counted instead of sent.
pub const REPEATS: u32 = 39;
