//! Code shared by the BPF programs and their loader.
//!
//! The crate is compiled three times: into the BPF programs, into the loader, and into native tests
//! and fuzzers, so that the tests cover the code that the verifier accepts.
//!
//! * [`rule`] and [`table`]: unwind rules and the tables that hold them;
//! * [`walk`]: one unwind step on each [`architecture`], and [`reason`]: why it stopped;
//! * [`interpreter`]: the frames of interpreted code, runtime by runtime;
//! * [`context`]: the labels, trace and span of a thread;
//! * [`mappings`]: VMA lookup in the kernel's tree, with member offsets from [`layout`], or in the
//!   mappings [`published`] by the loader;
//! * [`file`](mod@file) and [`frame`]: file IDs and frames; [`record`]: the records sent to the loader.

#![no_std]
#![cfg_attr(target_arch = "bpf", feature(asm_experimental_arch))]

#[cfg(test)]
extern crate std;

pub mod architecture;
pub mod context;
pub mod counter;
pub mod file;
pub mod frame;
pub mod identify;
pub mod interpreter;
pub mod layout;
pub mod mappings;
pub mod published;
pub mod reason;
pub mod record;
pub mod rule;
pub mod sample_counts;
pub mod settings;
pub mod table;
pub mod walk;

/// Hides the value from the optimizer, like `barrier_var` of libbpf.
///
/// The compiler would otherwise drop a bound check that it can prove and the verifier cannot, or turn
/// branchless arithmetic back into a branch.
#[inline(always)]
pub fn barrier_var(value: u64) -> u64 {
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
pub fn barrier_var_u32(value: u32) -> u32 {
    barrier_var(u64::from(value)) as u32
}

// aya requires it of map keys and values.
#[cfg(feature = "host")]
#[allow(unsafe_code, reason = "each is plain data, as its derives prove")]
mod host {
    use crate::{context, file, identify, interpreter, published, record, sample_counts, settings};

    // SAFETY: plain data of fixed layout, valid for any bytes.
    unsafe impl aya::Pod for file::FileId {}
    // SAFETY: as above.
    unsafe impl aya::Pod for file::FileEntry {}
    // SAFETY: as above.
    unsafe impl aya::Pod for settings::Settings {}
    // SAFETY: as above.
    unsafe impl aya::Pod for identify::Identified {}
    // SAFETY: as above.
    unsafe impl aya::Pod for interpreter::Interpreter {}
    // SAFETY: as above.
    unsafe impl aya::Pod for interpreter::hotspot::JavaProcess {}
    // SAFETY: as above.
    unsafe impl aya::Pod for interpreter::beam::BeamProcess {}
    // SAFETY: as above.
    unsafe impl aya::Pod for interpreter::dotnet::DotNetProcess {}
    // SAFETY: as above.
    unsafe impl aya::Pod for context::ContextLayout {}
    // SAFETY: as above.
    unsafe impl aya::Pod for context::library::ProcessContexts {}
    // SAFETY: as above.
    unsafe impl aya::Pod for record::ProcessKey {}
    // SAFETY: as above.
    unsafe impl aya::Pod for record::ThreadKey {}
    // SAFETY: as above.
    unsafe impl aya::Pod for sample_counts::SampleKey {}
    // SAFETY: as above.
    unsafe impl aya::Pod for published::ProcessImage {}
    // SAFETY: as above.
    unsafe impl aya::Pod for published::ImageAreas {}
    // SAFETY: as above.
    unsafe impl aya::Pod for published::Area {}
}
