//! Words in the heap: tagged pointers to objects, and small integers.

use profcol_ebpf_common::interpreter::v8;

/// An object pointer without its tag.
pub fn untagged(word: u64) -> Option<u64> {
    v8::is_object(word).then_some(word & !3)
}

/// The value of a small integer.
pub fn small_integer(word: u64) -> Option<i32> {
    (word as u32 == 0).then_some((word >> 32) as i32)
}
