//! What the BPF programs and their loader share.
//!
//! The crate is compiled three times: into the BPF programs, into the loader, and into native tests
//! and fuzzers. What the kernel's verifier accepts is then what the tests have tested.
//!
//! * [`rule`] and [`table`]: how to get from a frame to its caller, and where that is written;
//! * [`walk`]: the step that does it on each [`architecture`], and [`reason`]: why it ends;
//! * [`mappings`]: which file is behind an address, by the kernel's own tree, its members found by
//!   [`layout`], or by what the loader [`published`];
//! * [`file`](mod@file) and [`frame`]: how files and frames are told apart; [`record`]: what is sent.

#![no_std]
#![cfg_attr(target_arch = "bpf", feature(asm_experimental_arch))]

#[cfg(test)]
extern crate std;

pub mod architecture;
pub mod counter;
pub mod file;
pub mod frame;
pub mod identify;
pub mod layout;
pub mod mappings;
pub mod published;
pub mod reason;
pub mod record;
pub mod repeat;
pub mod rule;
pub mod settings;
pub mod table;
pub mod walk;

/// Makes the compiler forget what it knows of a number.
///
/// It would otherwise drop a bound that it can prove and the verifier cannot, or turn a choice made
/// by arithmetic back into a branch.
#[inline(always)]
pub fn hide(value: u64) -> u64 {
    #[cfg(target_arch = "bpf")]
    {
        let mut value = value;
        // SAFETY: the template is empty; the number passes through a register.
        #[allow(unsafe_code, reason = "inline assembly, no instruction in it")]
        unsafe {
            core::arch::asm!("", inout("r5") value, options(nomem, nostack));
        }
        value
    }
    #[cfg(not(target_arch = "bpf"))]
    value
}

#[inline(always)]
pub fn hide_u32(value: u32) -> u32 {
    hide(u64::from(value)) as u32
}

// The loader's library asks for this of what it puts into maps and takes out of them.
#[cfg(feature = "host")]
#[allow(unsafe_code, reason = "each is plain data, as its derives prove")]
mod host {
    use crate::{file, identify, published, record, repeat, settings};

    // SAFETY: plain data of fixed layout, valid for any bytes.
    unsafe impl aya::Pod for file::FileId {}
    // SAFETY: as above.
    unsafe impl aya::Pod for file::FileEntry {}
    // SAFETY: as above.
    unsafe impl aya::Pod for settings::Settings {}
    // SAFETY: as above.
    unsafe impl aya::Pod for identify::Answer {}
    // SAFETY: as above.
    unsafe impl aya::Pod for record::ProcessKey {}
    // SAFETY: as above.
    unsafe impl aya::Pod for repeat::Repeat {}
    // SAFETY: as above.
    unsafe impl aya::Pod for published::Image {}
    // SAFETY: as above.
    unsafe impl aya::Pod for published::Stretch {}
    // SAFETY: as above.
    unsafe impl aya::Pod for published::Area {}
}
