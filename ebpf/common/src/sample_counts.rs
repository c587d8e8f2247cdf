//! In-kernel aggregation: of equal samples only the first is sent, the others are counted.
//!
//! Counts are double-buffered: while the loader reads one map, the programs count in the other. Each
//! sample says which buffer it belongs to, so every count is added to the right stack.

use crate::record::ProcessKey;

/// Key of a count: samples that differ in time or CPU only are equal.
#[cfg_attr(feature = "host", derive(bytemuck::Pod, bytemuck::Zeroable))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(C)]
pub struct SampleKey {
    pub process: ProcessKey,
    pub thread: u32,
    /// An [`EndReason`](crate::reason::EndReason).
    pub end: u32,
    pub stack: StackHash,
}

/// A 128-bit hash of a stack.
#[cfg_attr(feature = "host", derive(bytemuck::Pod, bytemuck::Zeroable))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(C)]
pub struct StackHash(pub [u64; 2]);

impl StackHash {
    /// The number of kernel frames is part of the hash.
    #[inline(always)]
    pub fn begin(kernel_frames: u32) -> Self {
        Self([u64::from(kernel_frames), 0x9e37_79b9_7f4a_7c15])
    }

    #[inline(always)]
    pub fn add(&mut self, frame: u64) {
        let [a, b] = self.0;
        let a = (a ^ frame).wrapping_mul(0xff51_afd7_ed55_8ccd);
        let b = (b.rotate_left(27) ^ frame).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
        self.0 = [a ^ a >> 32, b ^ b >> 29];
    }
}

/// Where equal samples are counted.
pub mod count_buffer {
    /// Not counted: each sample is sent.
    pub const NONE: u32 = 0;
    /// In the first map.
    pub const FIRST: u32 = 1;
    /// In the second map.
    pub const SECOND: u32 = 2;
}
