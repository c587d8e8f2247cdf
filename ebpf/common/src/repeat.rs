//! Counting in the kernel: of equal samples only the first is sent, the others are counted.
//!
//! Counts are kept in two maps that take turns. While one is emptied the other is counted in, and
//! each sample says which turn it belongs to: so that none falls between two turns, and each count
//! is added to the stack of its own.

use crate::record::ProcessKey;

/// What samples have in common that differ in time alone, or in the CPU.
#[cfg_attr(feature = "host", derive(bytemuck::Pod, bytemuck::Zeroable))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(C)]
pub struct Repeat {
    pub process: ProcessKey,
    pub thread: u32,
    /// Why the user's stack ends where it ends.
    pub end: u32,
    pub stack: StackHash,
}

/// Stands for a stack: its frames in two lanes.
#[cfg_attr(feature = "host", derive(bytemuck::Pod, bytemuck::Zeroable))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(C)]
pub struct StackHash(pub [u64; 2]);

impl StackHash {
    /// The number of kernel frames is part of what a stack is.
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

/// What the programs do with samples that are equal.
pub mod turn {
    /// They send each.
    pub const NONE: u32 = 0;
    /// They count them in the first map.
    pub const FIRST: u32 = 1;
    /// They count them in the second map.
    pub const SECOND: u32 = 2;
}
