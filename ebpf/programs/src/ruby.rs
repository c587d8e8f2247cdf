//! Adds Ruby frames after the native frames of `rb_vm_exec`, whose rules are marked like its loop's.

use aya_ebpf::helpers::generated::bpf_get_current_task;
use profcol_ebpf_common::counter;
use profcol_ebpf_common::interpreter::ruby::{self, Layout, Walk, above};
use profcol_ebpf_common::interpreter::{
    Detail, Interpreter, RuntimeProcess, Step, runtime, unreadable,
};
use profcol_ebpf_common::settings::Settings;
use profcol_ebpf_common::walk::Registers;

use crate::interpreter::{self, has_room, push, stage};
use crate::scratch::{Scratch, ScratchHandle};
use crate::unwind::CONTINUE;
use crate::{kernel, maps};

/// Per call; the next call continues.
const FRAMES_PER_CALL: u32 = 4;

/// Whether the thread's execution context was found.
mod found {
    pub const NOT_YET: u32 = 0;
    pub const CONTEXT: u32 = 1;
    pub const NOTHING: u32 = 2;
}

/// Handles a frame of Ruby's file that was just unwound.
#[inline(always)]
pub fn handle_frame(scratch: &mut Scratch) {
    scratch.interpreter_stage = stage::RUBY_ENTER;
}

/// The file is Ruby's.
#[inline(always)]
pub fn handle_file(scratch: &mut Scratch, file: u32) {
    scratch.ruby_file = file;
    scratch.ruby_found = found::NOT_YET;
    handle_frame(scratch);
}

/// Handles the `rb_vm_exec` that called generated code; the frames of the code follow it.
#[inline(always)]
pub fn leave_generated(
    scratch: &mut Scratch,
    settings: &Settings,
    interpreter: &Interpreter,
    process: RuntimeProcess,
) -> Option<Registers> {
    if scratch.ruby_file != process.file {
        scratch.ruby_file = process.file;
        let above = if scratch.depth == 0 {
            above::MET
        } else {
            above::CALLED
        };
        let state = process.state.wrapping_add(interpreter.state);
        begin(scratch, settings, &interpreter.ruby, state, above);
    }
    if scratch.ruby_found != found::CONTEXT {
        return None;
    }
    let (walk, sp) = (scratch.ruby, scratch.walk.registers.sp);
    walk.leave_generated(sp, scratch)
}

/// Determines the function of the frame.
#[unsafe(no_mangle)]
#[inline(never)]
pub extern "C" fn enter_ruby(handle: ScratchHandle) -> u32 {
    let (Some(scratch), Some(settings)) = (Scratch::from_handle(handle), maps::settings()) else {
        return CONTINUE;
    };
    scratch.interpreter_stage = stage::NATIVE;
    let Some(interpreter) = interpreter::interpreter(scratch.native.file) else {
        scratch.ruby_file = 0;
        return CONTINUE;
    };
    let layout = &interpreter.ruby;
    let offset = scratch.frame.offset();
    if offset >= u64::from(layout.loop_start) && offset < u64::from(layout.loop_end) {
        scratch.ruby_loop = scratch.native.cfa;
        scratch.ruby_loop_is_leaf = u32::from(scratch.depth == 0);
        // The frames that it runs follow its caller.
        scratch.depth += 1;
        return CONTINUE;
    }
    if scratch.ruby_found == found::NOT_YET {
        let mut above = above::ENTRY;
        if scratch.ruby_loop == scratch.native.sp {
            above = above::CALLED;
            if scratch.ruby_loop_is_leaf != 0 {
                above = above::LOOP;
            }
        }
        let state = scratch.native.state.wrapping_add(interpreter.state);
        begin(scratch, settings, layout, state, above);
    }
    if scratch.ruby_found == found::CONTEXT {
        scratch.interpreter_stage = stage::RUBY;
    }
    CONTINUE
}

/// Begins the walk along the thread's frames.
#[inline(always)]
fn begin(scratch: &mut Scratch, settings: &Settings, layout: &Layout, state: u64, above: u64) {
    // SAFETY: the helper has no preconditions.
    let task = unsafe { bpf_get_current_task() };
    let pointer = kernel::word(task.wrapping_add(settings.layout.task_thread_pointer)).unwrap_or(0);
    let context = ruby::find_context(layout, state, pointer, scratch).unwrap_or(0);
    scratch.ruby_found = found::CONTEXT;
    match Walk::begin(context, above, scratch) {
        Some(walk) => scratch.ruby = walk,
        None => {
            scratch.ruby_found = found::NOTHING;
            maps::count(counter::INTERPRETER_NO_THREAD);
            let detail = Detail::new(0, unreadable::NO_THREAD);
            push(scratch, runtime::RUBY, 0, detail);
        }
    }
}

/// Adds some frames of the native frame.
#[unsafe(no_mangle)]
#[inline(never)]
pub extern "C" fn add_ruby_frames(handle: ScratchHandle) -> u32 {
    let (Some(scratch), Some(settings)) = (Scratch::from_handle(handle), maps::settings()) else {
        return CONTINUE;
    };
    let Some(interpreter) = interpreter::interpreter(scratch.native.file) else {
        scratch.interpreter_stage = stage::NATIVE;
        return CONTINUE;
    };
    let native = scratch.native;
    let mut walk = scratch.ruby;
    for _ in 0..FRAMES_PER_CALL {
        // The native walk ends the stack.
        if scratch.depth >= settings.max_frames || !has_room(scratch) {
            break;
        }
        match walk.step(&interpreter.ruby, &native, scratch) {
            Step::Frame(function, detail) => push(scratch, runtime::RUBY, function, detail),
            Step::Last(function, detail) => {
                if function == 0 {
                    maps::count(counter::INTERPRETER_UNREADABLE);
                }
                push(scratch, runtime::RUBY, function, detail);
                scratch.interpreter_stage = stage::NATIVE;
                break;
            }
            Step::Skip => {}
            Step::End | Step::NotEntered => {
                scratch.interpreter_stage = stage::NATIVE;
                break;
            }
        }
    }
    scratch.ruby = walk;
    CONTINUE
}
