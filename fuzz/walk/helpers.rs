//! The kernel helpers that the programs call.

pub mod generated {
    use std::ffi::c_void;

    use crate::kernel_image::MM;
    use crate::stage;

    const FAULT: i64 = -14;

    /// # Safety
    ///
    /// None: matches the signature that the programs call.
    pub unsafe fn bpf_get_current_task() -> u64 {
        MM
    }

    /// # Safety
    ///
    /// `into` has room for `bytes` bytes.
    pub unsafe fn bpf_probe_read_user(into: *mut c_void, bytes: u32, from: *const c_void) -> i64 {
        // SAFETY: guaranteed by the caller.
        let into = unsafe { std::slice::from_raw_parts_mut(into.cast::<u8>(), bytes as usize) };
        let is_read = stage::with(|process| process.read(from as u64, into));
        answer(is_read, into)
    }

    /// # Safety
    ///
    /// `into` has room for `bytes` bytes.
    pub unsafe fn bpf_probe_read_kernel(into: *mut c_void, bytes: u32, from: *const c_void) -> i64 {
        // SAFETY: guaranteed by the caller.
        let into = unsafe { std::slice::from_raw_parts_mut(into.cast::<u8>(), bytes as usize) };
        let is_read = stage::with(|process| process.kernel.read(from as u64, into));
        answer(is_read, into)
    }

    /// On a partial read the kernel fills the buffer with zeros.
    fn answer(is_read: bool, into: &mut [u8]) -> i64 {
        if !is_read {
            into.fill(0);
            return FAULT;
        }
        0
    }
}
