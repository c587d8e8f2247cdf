// SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
//! The BPF programs of the eBPF receiver.
//!
//! * [`sample`]: runs on each perf event of a CPU and sends the stack of the current task.
//! * [`identify`]: run by the loader to look up the file behind an address of its own.
//!
//! The verifier checks global functions (`extern "C"`, neither mangled nor inlined) once, however often
//! they are called; otherwise the loop over the frames would exceed its instruction limit. Pointer
//! arguments of global functions may be null, or are not allowed at all (see `scratch::ScratchHandle`).

#![no_std]
#![no_main]
#![feature(asm_experimental_arch)]

#[cfg_attr(feature = "blocks", path = "blocks.rs")]
mod arena;
mod beam;
mod context;
mod dotnet;
mod files;
mod frame_cache;
mod hotspot;
mod identify;
mod interpreter;
mod kernel;
mod luajit;
mod maps;
mod names;
mod perl;
mod php;
mod process;
mod published;
mod registers;
mod ruby;
mod sample;
mod sample_counts;
mod scratch;
mod stages;
mod task;
mod unwind;
mod v8;

/// The target architecture.
#[cfg(bpf_target_arch = "aarch64")]
use profcol_ebpf_common::architecture::Aarch64 as Target;
#[cfg(bpf_target_arch = "x86_64")]
use profcol_ebpf_common::architecture::X86_64 as Target;

#[panic_handler]
fn panic(_: &core::panic::PanicInfo) -> ! {
    loop {}
}

/// Most helpers are available to GPL-compatible programs only.
#[unsafe(link_section = "license")]
#[unsafe(no_mangle)]
static LICENSE: [u8; 4] = *b"GPL\0";
