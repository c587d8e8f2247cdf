//! Indices of counters. The end reasons have the first ones.

use crate::reason::REASONS;

/// Number of counters: a power of two.
pub const COUNTERS: usize = 64;
const _: () = assert!(REASONS <= COUNTERS / 2);

pub const SAMPLES: u32 = 32;
/// Records lost because the ring buffer was full.
pub const RING_FULL_SAMPLE: u32 = 33;
pub const RING_FULL_PROCESS: u32 = 34;
pub const RING_FULL_FILE: u32 = 35;
/// Files without a number because all are in use.
pub const NO_FREE_FILE_NUMBER: u32 = 36;
/// Ticks in excluded processes; they are not counted as samples.
pub const EXCLUDED: u32 = 37;
/// Total run time of the sampling program.
pub const RUN_NANOSECONDS: u32 = 38;
/// Samples counted instead of sent.
pub const COUNTED_SAMPLES: u32 = 39;
/// Interpreted frames whose memory could not be read.
pub const INTERPRETER_UNREADABLE: u32 = 40;
/// Native frames of an interpreter that does not know their thread.
pub const INTERPRETER_NO_THREAD: u32 = 41;
/// Labels that are missing or incomplete, by [`Loss`](crate::context::Loss).
pub const TOO_MANY_LABELS: u32 = 42;
pub const TOO_LONG_LABELS: u32 = 43;
pub const UNREADABLE_LABELS: u32 = 44;
