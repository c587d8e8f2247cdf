//! Has the C library give memory back that was freed.
//!
//! The C library keeps what is freed for the next allocation: with buffers of many MiB that is soon
//! more than what is in use, and the kernel counts it. Where memory is short it counts against
//! requests that would find room in it.

#![allow(unsafe_code, reason = "calls of the C library")]

#[cfg(target_env = "gnu")]
pub fn release_free() {
    // SAFETY: it takes no pointer and may be called at any time, by several threads at once.
    unsafe {
        libc::malloc_trim(0);
    }
}

/// Gives each large piece of memory pages of its own, which go back to the kernel when it is freed.
///
/// glibc does so by itself until the first one is freed: from then on it takes pieces of that size from where the small
/// ones are, and keeps up to 64 MiB at the end of each arena, which [`release_free`] does not give back.
#[cfg(target_env = "gnu")]
pub fn keep_large_memory_apart() {
    /// Larger than any batch that is sent often: to ask for new pages each time would cost more than it saves.
    const LARGE: libc::c_int = 1 << 20;
    // SAFETY: the call has no conditions.
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, LARGE);
    }
}

/// Other C libraries have no threshold that moves.
#[cfg(not(target_env = "gnu"))]
pub fn keep_large_memory_apart() {}

/// Other C libraries give back what is freed by themselves.
#[cfg(not(target_env = "gnu"))]
pub fn release_free() {}

#[cfg(all(test, target_env = "gnu"))]
mod tests {
    use super::*;
    use crate::memory::in_use;

    #[test]
    fn gives_back_what_was_freed_between_what_is_in_use() {
        const PAGES: usize = 10_000;
        let mut pages: Vec<_> = (0..PAGES).map(|_| Some(vec![1_u8; 8000])).collect();
        for page in pages.iter_mut().skip(1).step_by(2) {
            *page = None;
        }
        let before = in_use().unwrap();
        release_free();
        let after = in_use().unwrap();
        assert!(after + (10 << 20) < before, "{before} to {after}");
        assert!(pages.iter().step_by(2).all(|page| page.is_some()));
    }
}
