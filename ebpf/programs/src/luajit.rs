//! Adds LuaJIT's frames after the native frames of its virtual machine, whose rules are marked.

use profcol_ebpf_common::counter;
use profcol_ebpf_common::interpreter::luajit::{self, Machine, Search, Walk};
use profcol_ebpf_common::interpreter::{Step, runtime};

use crate::interpreter::{self, has_room, push, stage};
use crate::maps;
use crate::scratch::{Scratch, ScratchHandle};
use crate::unwind::CONTINUE;

/// The file is LuaJIT's; the frame pointer is that of the native frame.
#[inline(always)]
pub fn handle_file(scratch: &mut Scratch, file: u32) {
    scratch.luajit_file = file;
    scratch.luajit = Walk::default();
    scratch.luajit_search.left = 0;
    scratch.interpreter_stage = stage::LUAJIT_ENTER;
}

/// Begins with a native frame, or adds its next frame.
#[unsafe(no_mangle)]
#[inline(never)]
pub extern "C" fn add_luajit_frames(handle: ScratchHandle) -> u32 {
    let (Some(scratch), Some(settings)) = (Scratch::from_handle(handle), maps::settings()) else {
        return CONTINUE;
    };
    let mut walk = scratch.luajit;
    // The native walk ends the stack.
    if scratch.depth >= settings.max_frames || !has_room(scratch) {
        return CONTINUE;
    }
    let step = walk.step(scratch);
    scratch.luajit = walk;
    if let Step::Frame(function, detail) | Step::Last(function, detail) = step {
        if function == 0 {
            maps::count(counter::INTERPRETER_UNREADABLE);
        }
        push(scratch, runtime::LUAJIT, function, detail);
    }
    if !matches!(step, Step::Frame(..) | Step::Skip) {
        scratch.interpreter_stage = stage::NATIVE;
    }
    CONTINUE
}

/// Begins with a native frame.
#[unsafe(no_mangle)]
#[inline(never)]
pub extern "C" fn enter_luajit(handle: ScratchHandle) -> u32 {
    let Some(scratch) = Scratch::from_handle(handle) else {
        return CONTINUE;
    };
    let native = scratch.native.sp;
    // The innermost frame may be a helper of the virtual machine, or C code that a helper calls.
    if scratch.luajit.state == 0
        && scratch.luajit_search.left == 0
        && !luajit::is_native(native, scratch)
    {
        find_native(scratch, native, false);
        return CONTINUE;
    }
    scratch.luajit_search.left = 0;
    scratch.interpreter_stage = stage::NATIVE;
    let Some(interpreter) = interpreter::interpreter(scratch.native.file) else {
        return CONTINUE;
    };
    let [_, _, base, instruction] = scratch.loop_registers;
    let first = scratch.first.registers;
    let machine = Machine {
        // A helper has a return address on the stack. Code that enters or leaves the machine is further away.
        is_leaf: scratch.depth == 0 && native.wrapping_sub(first.sp) <= 8,
        ip: first.ip,
        base,
        instruction,
        fp: scratch.v8_frame,
    };
    let mut walk = scratch.luajit;
    if walk.enter(&interpreter.luajit, native, &machine, scratch) {
        scratch.interpreter_stage = stage::LUAJIT;
    }
    scratch.luajit = walk;
    CONTINUE
}

/// Whether the innermost frame is that of a helper of the virtual machine, which the machine's rule does not
/// describe; `end` is why the stack would end there.
#[inline(always)]
pub fn is_in_helper(scratch: &mut Scratch, address: u64, sp: u64, end: u32) -> bool {
    let file = scratch.frame.file();
    let is_luajit =
        |file| interpreter::interpreter(file).is_some_and(|found| found.runtime == runtime::LUAJIT);
    if scratch.depth != 1 || !is_luajit(file) {
        return false;
    }
    scratch.depth = 0;
    scratch.native.sp = sp;
    scratch.native.state = address.wrapping_sub(scratch.frame.offset());
    scratch.native.file = file;
    handle_file(scratch, file);
    find_native(scratch, sp, false);
    scratch.luajit_search.end = end;
    true
}

/// Begins the search for the native frame below this stack pointer.
#[inline(always)]
pub fn find_native(scratch: &mut Scratch, sp: u64, is_trace: bool) {
    scratch.luajit_search = Search::begin(sp, is_trace);
    scratch.interpreter_stage = stage::LUAJIT_FIND;
}

/// Searches a part of the stack for the native frame. Returns an end reason if the stack ends without it.
#[unsafe(no_mangle)]
#[inline(never)]
pub extern "C" fn search_luajit(handle: ScratchHandle) -> u32 {
    let Some(scratch) = Scratch::from_handle(handle) else {
        return CONTINUE;
    };
    let mut search = scratch.luajit_search;
    let found = search.step(scratch);
    scratch.luajit_search = search;
    let Some(sp) = found else {
        if search.left == 0 {
            // If it is generated code, it belongs to something else.
            scratch.runtime_process.file = 0;
            scratch.interpreter_stage = stage::NATIVE;
            scratch.depth += u32::from(search.end != CONTINUE);
            return search.end;
        }
        return CONTINUE;
    };
    if search.is_trace != 0 {
        let process = scratch.runtime_process;
        let fp = scratch.walk.registers.fp;
        scratch.luajit_search.left = 0;
        scratch.interpreter_stage = stage::NATIVE;
        if let Some(interpreter) = interpreter::interpreter(process.file) {
            let registers = luajit::after_trace(&interpreter.luajit, process.state, sp, fp);
            // It may be mapped over the machine itself.
            if registers.ip == scratch.walk.registers.ip {
                scratch.runtime_process.file = 0;
                return CONTINUE;
            }
            scratch.walk.registers = registers;
            scratch.walk.exact = 1;
        }
        return CONTINUE;
    }
    if let Some(registers) = luajit::leave_native(sp, scratch) {
        scratch.native.sp = sp;
        scratch.walk.registers = registers;
        scratch.walk.exact = 0;
    }
    scratch.luajit_search.left = 1;
    scratch.interpreter_stage = stage::LUAJIT_ENTER;
    CONTINUE
}
