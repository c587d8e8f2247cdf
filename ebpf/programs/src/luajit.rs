//! Adds LuaJIT's frames after the native frames of its virtual machine, whose rules are marked.

use profcol_ebpf_common::counter;
use profcol_ebpf_common::interpreter::luajit::{self, Machine, Walk};
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
    scratch.interpreter_stage = stage::NATIVE;
    let Some(interpreter) = interpreter::interpreter(scratch.native.file) else {
        return CONTINUE;
    };
    let mut native = scratch.native.sp;
    // The innermost frame may be a helper of the virtual machine, or C code that a helper calls.
    if scratch.luajit.state == 0
        && let Some(found) = luajit::find_native(native, scratch)
        && found != native
        && let Some(registers) = luajit::leave_native(found, scratch)
    {
        native = found;
        scratch.walk.registers = registers;
        scratch.walk.exact = 0;
    }
    let [_, _, base, instruction] = scratch.loop_registers;
    let machine = Machine {
        is_leaf: scratch.depth == 0,
        ip: scratch.first.registers.ip,
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
