//! Adds the frames of Ruby behind the native frames of `rb_vm_exec`, which is marked as its loop is.

use aya_ebpf::helpers::generated::bpf_get_current_task;
use profcol_ebpf_common::counter;
use profcol_ebpf_common::interpreter::ruby::{self, Layout, RubyProcess, Walk, above};
use profcol_ebpf_common::interpreter::{Detail, Step, runtime, unreadable};
use profcol_ebpf_common::settings::Settings;

use crate::interpreter::{self, has_room, push, stage};
use crate::maps::RUBY_PROCESSES;
use crate::scratch::{Scratch, ScratchHandle};
use crate::unwind::CONTINUE;
use crate::{kernel, maps, v8};

/// Per call; the rest is left to the next one.
const FRAMES_PER_CALL: u32 = 4;

/// Whether the thread's execution context was found.
mod found {
    pub const NOT_YET: u32 = 0;
    pub const CONTEXT: u32 = 1;
    pub const NOTHING: u32 = 2;
}

/// A frame of Ruby's file, which the walk just left.
#[inline(always)]
pub fn meet(scratch: &mut Scratch) {
    scratch.interpreter_stage = stage::RUBY_ENTER;
}

/// The file turned out to be Ruby's. If the process was not known to have it and its generated code was
/// met, the stack is walked again with that knowledge.
#[inline(always)]
pub fn meet_file(scratch: &mut Scratch, file: u32, layout: u64) {
    let process = RubyProcess {
        state: scratch.native.state.wrapping_add(layout),
        file,
        unused: 0,
    };
    let is_known = scratch.ruby_looked_up != 0 && scratch.ruby_process.file != 0;
    scratch.ruby_file = file;
    scratch.ruby_found = found::NOT_YET;
    scratch.ruby_looked_up = 1;
    scratch.ruby_process = process;
    // SAFETY: plain numbers.
    let known = unsafe { RUBY_PROCESSES.get(&scratch.sample.process) };
    if known.is_none_or(|known| *known != process) {
        let _ = RUBY_PROCESSES.insert(&scratch.sample.process, &process, 0);
    }
    if is_known || scratch.v8_skipped == 0 {
        meet(scratch);
    } else {
        v8::walk_again(scratch);
    }
}

/// Whether the current frame is one of code that Ruby generated, as far as is known.
#[inline(always)]
pub fn meet_generated(scratch: &mut Scratch) -> bool {
    if scratch.ruby_looked_up == 0 {
        scratch.ruby_looked_up = 1;
        // SAFETY: plain numbers.
        let known = unsafe { RUBY_PROCESSES.get(&scratch.sample.process) };
        scratch.ruby_process = known.copied().unwrap_or_default();
    }
    if scratch.ruby_process.file == 0 {
        return false;
    }
    scratch.interpreter_stage = stage::RUBY_GENERATED;
    true
}

/// Leaves generated code for the `rb_vm_exec` that called it, behind which are the frames of the code.
#[unsafe(no_mangle)]
#[inline(never)]
pub extern "C" fn leave_ruby_generated(handle: ScratchHandle) -> u32 {
    let (Some(scratch), Some(settings)) = (Scratch::from_handle(handle), maps::settings()) else {
        return CONTINUE;
    };
    scratch.interpreter_stage = stage::NATIVE;
    let RubyProcess { state, file, .. } = scratch.ruby_process;
    // Where this fails it is code of anybody.
    scratch.ruby_process.file = 0;
    let Some(interpreter) = interpreter::interpreter(file) else {
        return CONTINUE;
    };
    if scratch.ruby_file != file {
        scratch.ruby_file = file;
        let above = if scratch.depth == 0 {
            above::MET
        } else {
            above::CALLED
        };
        begin(scratch, settings, &interpreter.ruby, state, above);
    }
    if scratch.ruby_found != found::CONTEXT {
        return CONTINUE;
    }
    let (walk, sp) = (scratch.ruby, scratch.walk.registers.sp);
    if let Some(registers) = walk.leave_generated(sp, scratch) {
        scratch.ruby_process.file = file;
        scratch.walk.registers = registers;
        scratch.walk.exact = 1;
    }
    CONTINUE
}

/// Finds out which function's frame it is.
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
        // What it runs is behind its caller.
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
