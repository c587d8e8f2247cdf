//! Walks the frames of Java code, which has no frame pointers, by HotSpot's own metadata.

use profcol_ebpf_common::counter;
use profcol_ebpf_common::interpreter::hotspot::{
    AddressRange, CodeFrame, HotspotError, JavaProcess, Walk,
};
use profcol_ebpf_common::interpreter::{Detail, runtime};
use profcol_ebpf_common::reason::EndReason;
use profcol_ebpf_common::walk::Registers;

use crate::interpreter::{self, stage};
use crate::maps::{self, JAVA_PROCESSES};
use crate::scratch::{Scratch, ScratchHandle};
use crate::unwind::CONTINUE;

/// How to unwind the frame, a result of [`find`]; other values are end reasons.
pub const INTERPRETED: u32 = 1 << 29;
pub const COMPILED: u32 = INTERPRETED + 1;
pub const STUB: u32 = INTERPRETED + 2;

/// Whether the current frame is in Java code.
#[inline(always)]
pub fn is_java_code(scratch: &mut Scratch) -> bool {
    if scratch.java_looked_up == 0 {
        scratch.java_looked_up = 1;
        scratch.java_code = process(scratch).map_or(NO_CODE, |process| process.cache.range);
    }
    if !scratch.java_code.holds(scratch.walk.registers.ip) {
        return false;
    }
    scratch.interpreter_stage = stage::HOTSPOT;
    true
}

const NO_CODE: AddressRange = AddressRange { start: 0, end: 0 };

#[inline(always)]
fn process(scratch: &Scratch) -> Option<&'static JavaProcess> {
    // SAFETY: plain numbers. The loader may replace them concurrently; each read is checked anyway.
    unsafe { JAVA_PROCESSES.get(&scratch.sample.process) }
}

/// Finds the code of the frame.
#[unsafe(no_mangle)]
#[inline(never)]
pub extern "C" fn find(handle: ScratchHandle) -> u32 {
    let Some(scratch) = Scratch::from_handle(handle) else {
        return EndReason::NoRegisters as u32;
    };
    scratch.interpreter_stage = stage::NATIVE;
    let Some(process) = process(scratch) else {
        return EndReason::NoUnwindInfo as u32;
    };
    if process.cache.interpreter.holds(scratch.walk.registers.ip) {
        return INTERPRETED;
    }
    match walk(scratch).place(&process.layout, &process.cache, scratch) {
        Ok(place) => {
            scratch.java_place = place;
            if place.blob.is_compiled() {
                COMPILED
            } else {
                STUB
            }
        }
        Err(failure) => give_up(scratch, failure),
    }
}

/// Unwinds a frame of the interpreter.
#[unsafe(no_mangle)]
#[inline(never)]
pub extern "C" fn leave_interpreted(handle: ScratchHandle) -> u32 {
    leave(handle, |walk, java, scratch| {
        walk.step_interpreted(&java.layout, &java.cache, scratch)
    })
}

/// Unwinds a frame of a compiled method.
#[unsafe(no_mangle)]
#[inline(never)]
pub extern "C" fn leave_compiled(handle: ScratchHandle) -> u32 {
    leave(handle, |walk, java, scratch| {
        let place = scratch.java_place;
        walk.step_compiled(&java.layout, &java.cache, &place, scratch)
    })
}

/// Unwinds a frame of other runtime code.
#[unsafe(no_mangle)]
#[inline(never)]
pub extern "C" fn leave_stub(handle: ScratchHandle) -> u32 {
    leave(handle, |walk, java, scratch| {
        let place = scratch.java_place;
        walk.step_stub(&java.cache, &place, scratch)
    })
}

#[inline(always)]
fn leave(
    handle: ScratchHandle,
    step: impl FnOnce(&mut Walk, &JavaProcess, &mut Scratch) -> Result<CodeFrame, HotspotError>,
) -> u32 {
    let Some(scratch) = Scratch::from_handle(handle) else {
        return EndReason::NoRegisters as u32;
    };
    let Some(process) = process(scratch) else {
        return EndReason::NoUnwindInfo as u32;
    };
    let mut walk = walk(scratch);
    let found = step(&mut walk, process, scratch);
    enter_caller(scratch, &walk, found)
}

#[inline(always)]
fn walk(scratch: &Scratch) -> Walk {
    let Registers { ip, sp, fp, .. } = scratch.walk.registers;
    let [bcp, method, result] = scratch.java_registers;
    Walk {
        ip,
        sp,
        fp,
        bcp,
        method,
        result,
        exact: scratch.walk.exact,
        unused: 0,
    }
}

#[inline(always)]
fn enter_caller(scratch: &mut Scratch, walk: &Walk, found: Result<CodeFrame, HotspotError>) -> u32 {
    let found = match found {
        Ok(found) => found,
        Err(failure) => return give_up(scratch, failure),
    };
    replace(scratch, found.runtime, found.function, found.detail);
    scratch.java_registers = [0; 3];
    scratch.walk.exact = 0;
    scratch.walk.registers = Registers {
        ip: walk.ip,
        sp: walk.sp,
        fp: walk.fp,
        link: 0,
    };
    if walk.ip == 0 {
        return EndReason::Complete as u32;
    }
    CONTINUE
}

/// Ends the stack with a frame that has the reason.
#[inline(always)]
fn give_up(scratch: &mut Scratch, failure: HotspotError) -> u32 {
    maps::count(counter::INTERPRETER_UNREADABLE);
    let detail = Detail::new(0, failure as u32);
    replace(scratch, runtime::HOTSPOT_STUB, 0, detail);
    EndReason::NoUnwindInfo as u32
}

/// Replaces the native frame.
#[inline(always)]
fn replace(scratch: &mut Scratch, runtime: u32, function: u64, detail: Detail) {
    scratch.depth -= 1;
    interpreter::push(scratch, runtime, function, detail);
}
