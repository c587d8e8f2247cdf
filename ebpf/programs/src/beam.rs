//! Walks the frames of code that BEAM's JIT compiler generated.

use aya_ebpf::helpers::generated::bpf_get_current_task;
use profcol_ebpf_common::counter;
use profcol_ebpf_common::interpreter::beam::{
    BeamError, BeamProcess, ReservedRegisters, StackScan,
};
use profcol_ebpf_common::interpreter::{Detail, runtime};
use profcol_ebpf_common::reason::EndReason;

use crate::interpreter::{self, stage};
use crate::kernel;
use crate::maps::{self, BEAM_PROCESSES};
use crate::scratch::{Scratch, ScratchHandle};
use crate::unwind::CONTINUE;

/// Whether the current frame is in code of BEAM.
#[inline(always)]
pub fn is_beam_code(scratch: &mut Scratch) -> bool {
    if scratch.beam_looked_up == 0 {
        scratch.beam_looked_up = 1;
        scratch.beam_code = process(scratch).map_or_else(Default::default, |process| process.code);
    }
    if !scratch.beam_code.holds(scratch.walk.registers.ip) {
        return false;
    }
    scratch.interpreter_stage = stage::BEAM_ENTER;
    true
}

#[inline(always)]
fn process(scratch: &Scratch) -> Option<&'static BeamProcess> {
    // SAFETY: plain numbers. The loader may replace them concurrently; each read is checked anyway.
    unsafe { BEAM_PROCESSES.get(&scratch.sample.process) }
}

/// Begins the walk at the current frame, which is the innermost one or called C functions.
#[unsafe(no_mangle)]
#[inline(never)]
pub extern "C" fn enter(handle: ScratchHandle) -> u32 {
    let (Some(scratch), Some(settings)) = (Scratch::from_handle(handle), maps::settings()) else {
        return EndReason::NoRegisters as u32;
    };
    scratch.interpreter_stage = stage::NATIVE;
    let Some(process) = process(scratch) else {
        return EndReason::NoUnwindInfo as u32;
    };
    // SAFETY: the helper has no preconditions.
    let task = unsafe { bpf_get_current_task() };
    let thread_pointer = task.wrapping_add(settings.layout.task_thread_pointer);
    let thread_pointer = kernel::word(thread_pointer).unwrap_or(0);
    let [process_register, scheduler_registers, _] = scratch.java_registers;
    scratch.java_registers = [0; 3];
    let reserved = ReservedRegisters {
        process: process_register,
        scheduler_registers,
    };
    let registers = scratch.walk.registers;
    let is_exact = scratch.walk.exact != 0;
    match process.begin(&registers, is_exact, reserved, thread_pointer, scratch) {
        Ok(walk) => {
            scratch.beam = walk;
            scratch.depth -= 1;
            interpreter::push(
                scratch,
                runtime::BEAM,
                scratch.walk.address(),
                walk.detail(),
            );
            scratch.interpreter_stage = stage::BEAM;
            CONTINUE
        }
        Err(failure) => {
            scratch.depth -= 1;
            give_up(scratch, failure)
        }
    }
}

/// Adds the caller, if the next words of the stack have one. After the last one, the walk leaves the process.
#[unsafe(no_mangle)]
#[inline(never)]
pub extern "C" fn add_caller(handle: ScratchHandle) -> u32 {
    let Some(scratch) = Scratch::from_handle(handle) else {
        return EndReason::NoRegisters as u32;
    };
    let Some(process) = process(scratch) else {
        return EndReason::NoUnwindInfo as u32;
    };
    let mut walk = scratch.beam;
    match walk.caller(process, scratch) {
        Ok(StackScan::Caller(address)) => {
            let detail = walk.detail();
            interpreter::push(scratch, runtime::BEAM, address.wrapping_sub(1), detail);
        }
        Ok(StackScan::More) => {}
        Ok(StackScan::First) => scratch.interpreter_stage = stage::BEAM_LEAVE,
        Err(failure) => {
            push_failure(scratch, failure);
            scratch.interpreter_stage = stage::BEAM_LEAVE;
        }
    }
    scratch.beam = walk;
    CONTINUE
}

/// Continues on the stack of the scheduler's thread.
#[unsafe(no_mangle)]
#[inline(never)]
pub extern "C" fn leave(handle: ScratchHandle) -> u32 {
    let Some(scratch) = Scratch::from_handle(handle) else {
        return EndReason::NoRegisters as u32;
    };
    scratch.interpreter_stage = stage::NATIVE;
    let Some(process) = process(scratch) else {
        return EndReason::NoUnwindInfo as u32;
    };
    let walk = scratch.beam;
    match process.leave(&walk, scratch) {
        Ok(registers) => {
            scratch.walk.registers = registers;
            scratch.walk.exact = 0;
            CONTINUE
        }
        Err(failure) => give_up(scratch, failure),
    }
}

/// Ends the stack with a frame that has the reason.
#[inline(always)]
fn give_up(scratch: &mut Scratch, failure: BeamError) -> u32 {
    push_failure(scratch, failure);
    EndReason::NoUnwindInfo as u32
}

#[inline(always)]
fn push_failure(scratch: &mut Scratch, failure: BeamError) {
    maps::count(counter::INTERPRETER_UNREADABLE);
    let detail = Detail::new(0, failure as u32);
    interpreter::push(scratch, runtime::BEAM, 0, detail);
}
