// SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
//! The BPF programs of the eBPF receiver.
//!
//! * [`sample`]: on each tick of a CPU, who runs there and where: one record.
//! * [`identify`]: run by the loader, tells the file behind an address of its own.
//!
//! The verifier reads functions that are global (`extern "C"`, neither mangled nor inlined) once,
//! however often they are called; without them the loop over the frames would not fit its budget.
//! Such a function takes its pointers as unknown, or none at all (see `scratch::Lent`).

#![no_std]
#![no_main]
#![feature(asm_experimental_arch)]

#[cfg_attr(feature = "blocks", path = "blocks.rs")]
mod arena;
mod files;
mod identify;
mod kernel;
mod maps;
mod names;
mod process;
mod published;
mod registers;
mod remembered;
mod repeats;
mod sample;
mod scratch;
mod task;
mod unwind;

/// The machine that the programs are for.
#[cfg(bpf_target_arch = "aarch64")]
use profcol_ebpf_common::architecture::Aarch64 as Target;
#[cfg(bpf_target_arch = "x86_64")]
use profcol_ebpf_common::architecture::X86_64 as Target;

#[panic_handler]
fn panic(_: &core::panic::PanicInfo) -> ! {
    loop {}
}

/// The kernel lends most of its helpers to programs with a licence that it can live with.
#[unsafe(link_section = "license")]
#[unsafe(no_mangle)]
static LICENSE: [u8; 4] = *b"GPL\0";
