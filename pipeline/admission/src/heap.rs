//! Returns freed memory from the C library to the kernel.
//!
//! The C library retains freed memory for later allocations. With buffers of many MiB that soon exceeds the memory in
//! use, counts as resident, and makes admission refuse requests that would fit.

#![allow(unsafe_code, reason = "calls of the C library")]

#[cfg(target_env = "gnu")]
pub fn release_free() {
    // SAFETY: takes no pointer, and is thread-safe.
    unsafe {
        libc::malloc_trim(0);
    }
}

/// Allocates each large block with `mmap`, so that freeing it returns its pages to the kernel.
///
/// glibc does so only until the first such block is freed: then it raises its mmap threshold, allocates blocks of that
/// size from arenas, and keeps up to 64 MiB at the top of each arena, which [`release_free`] does not return.
#[cfg(target_env = "gnu")]
pub fn keep_large_memory_apart() {
    /// Above the size of common batches, for which mapping pages each time would cost more than it saves.
    const LARGE: libc::c_int = 1 << 20;
    // SAFETY: the call has no preconditions.
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, LARGE);
    }
}

/// Other C libraries have no dynamic threshold.
#[cfg(not(target_env = "gnu"))]
pub fn keep_large_memory_apart() {}

/// Other C libraries return freed memory by themselves.
#[cfg(not(target_env = "gnu"))]
pub fn release_free() {}

#[cfg(all(test, target_env = "gnu"))]
mod tests {
    use super::*;
    use crate::memory::in_use;

    #[test]
    fn returns_freed_memory_between_allocations_in_use() {
        // Much more than the other tests in this process use meanwhile.
        const BLOCKS: usize = 2_000;
        let mut blocks: Vec<_> = (0..BLOCKS).map(|_| Some(vec![1_u8; 100_000])).collect();
        for block in blocks.iter_mut().skip(1).step_by(2) {
            *block = None;
        }
        let before = in_use().unwrap();
        release_free();
        let after = in_use().unwrap();
        assert!(after + (40 << 20) < before, "{before} to {after}");
        assert!(blocks.iter().step_by(2).all(|block| block.is_some()));
    }
}
