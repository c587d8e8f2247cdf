//! Adds JavaScript functions after the native frames that run them: those of builtins, whose rules are
//! marked, and those of generated code.

use profcol_ebpf_common::file::file_number;
use profcol_ebpf_common::interpreter::v8::{self, slot};
use profcol_ebpf_common::interpreter::{Detail, runtime};
use profcol_ebpf_common::walk::UserMemory;

use crate::interpreter::{self, stage};
use crate::maps::V8_FILES;
use crate::scratch::{Scratch, ScratchHandle};
use crate::unwind::CONTINUE;

/// Code without a frame, or in a prologue or epilogue.
const NO_FRAME: u64 = 0;

/// Handles a frame that may belong to a function and was unwound by its frame pointer: with any other
/// rule, the frame pointer is the caller's.
#[inline(always)]
pub fn handle_frame(scratch: &mut Scratch) {
    if scratch.walk.registers.sp == scratch.v8_frame.wrapping_add(16) {
        scratch.interpreter_stage = stage::V8;
    }
}

/// Handles an unwound frame of generated code.
#[inline(always)]
pub fn handle_generated(scratch: &mut Scratch) {
    if scratch.v8_looked_up == 0 {
        scratch.v8_looked_up = 1;
        if scratch.v8_file == 0 {
            // SAFETY: a word is read atomically.
            let known = unsafe { V8_FILES.get(&scratch.sample.process) };
            scratch.v8_file = known.copied().unwrap_or(0);
        }
    }
    if scratch.v8_file == 0 {
        scratch.v8_skipped = 1;
        return;
    }
    scratch.interpreter_stage = stage::V8;
    if scratch.walk.registers.sp != scratch.v8_frame.wrapping_add(16) {
        scratch.v8_frame = NO_FRAME;
    }
}

/// Handles an unwound builtin of V8. If the process was not known to have V8, the stack is walked again,
/// now with that knowledge.
#[inline(always)]
pub fn handle_builtin(scratch: &mut Scratch, file: u32) {
    scratch.interpreter_stage = stage::NATIVE;
    scratch.v8_file = file;
    let _ = V8_FILES.insert(&scratch.sample.process, &file, 0);
    if scratch.v8_skipped == 0 {
        handle_frame(scratch);
        return;
    }
    walk_again(scratch);
}

/// Restarts the walk at the start of the stack.
#[inline(always)]
pub fn walk_again(scratch: &mut Scratch) {
    scratch.v8_skipped = 0;
    scratch.interpreter_stage = stage::NATIVE;
    scratch.walk = scratch.first;
    scratch.sample.stack = scratch.first_stack;
    scratch.sample.user_words = 0;
    scratch.depth = 0;
}

/// Adds the function of the unwound frame, if it has one.
#[unsafe(no_mangle)]
#[inline(never)]
pub extern "C" fn add_function(handle: ScratchHandle) -> u32 {
    let Some(scratch) = Scratch::from_handle(handle) else {
        return CONTINUE;
    };
    scratch.interpreter_stage = stage::NATIVE;
    let file = scratch.v8_file;
    let Some(interpreter) = interpreter::interpreter(file) else {
        scratch.v8_file = 0;
        return CONTINUE;
    };
    let fp = scratch.v8_frame;
    let is_generated = scratch.frame.file() == file_number::ANONYMOUS;
    if fp == NO_FRAME {
        replace(scratch, runtime::V8_GENERATED, 0, Detail::new(0, file));
        return CONTINUE;
    }
    let Some(context) = scratch.user_word(fp.wrapping_sub(slot::CONTEXT)) else {
        return CONTINUE;
    };
    if is_generated && let Some(frame_type) = v8::frame_type(context) {
        let detail = Detail::new(frame_type, file);
        replace(scratch, runtime::V8_GENERATED, 0, detail);
        return CONTINUE;
    }
    let Some(closure) = scratch.user_word(fp.wrapping_sub(slot::FUNCTION)) else {
        return CONTINUE;
    };
    if !v8::is_object(context) || !v8::is_object(closure) {
        return CONTINUE;
    }
    let Some(bytecode_offset) = scratch.user_word(fp.wrapping_sub(slot::BYTECODE_OFFSET)) else {
        return CONTINUE;
    };
    let Some(function) = interpreter.v8.function(scratch, closure) else {
        return CONTINUE;
    };
    let (runtime, position) = if is_generated {
        (runtime::V8_GENERATED, file)
    } else {
        (runtime::V8, v8::position(bytecode_offset))
    };
    let detail = Detail::new(function.generation, position);
    replace(scratch, runtime, function.address, detail);
    CONTINUE
}

/// Replaces the native frame.
#[inline(always)]
fn replace(scratch: &mut Scratch, runtime: u32, function: u64, detail: Detail) {
    scratch.depth -= 1;
    interpreter::push(scratch, runtime, function, detail);
}
