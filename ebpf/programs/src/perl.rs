//! Adds Perl frames after the native frames of `Perl_runops_standard`, whose rules are marked.

use aya_ebpf::helpers::generated::bpf_get_current_task;
use profcol_ebpf_common::counter;
use profcol_ebpf_common::interpreter::perl::{self, Around, Walk};
use profcol_ebpf_common::interpreter::{Detail, Interpreter, Step, runtime, unreadable};
use profcol_ebpf_common::settings::Settings;

use crate::interpreter::{self, has_room, push, stage};
use crate::scratch::{Scratch, ScratchHandle};
use crate::unwind::CONTINUE;
use crate::{kernel, maps};

/// The file is Perl's: begins the walk at the current statement.
#[inline(always)]
pub fn begin_walk(
    scratch: &mut Scratch,
    settings: &Settings,
    file: u32,
    interpreter: &Interpreter,
) {
    scratch.perl_file = file;
    scratch.interpreter_stage = stage::PERL_ENTER;
    // SAFETY: the helper has no preconditions.
    let task = unsafe { bpf_get_current_task() };
    let pointer = kernel::word(task.wrapping_add(settings.layout.task_thread_pointer)).unwrap_or(0);
    let layout = &interpreter.perl;
    let state = scratch.native.state.wrapping_add(interpreter.state);
    let found = perl::find_interpreter(layout, state, pointer, scratch).unwrap_or(0);
    match Walk::begin(layout, found, scratch) {
        Some(walk) => scratch.perl = walk,
        None => {
            // It has no functions.
            scratch.perl = Walk::default();
            scratch.perl.is_entered = 1;
            maps::count(counter::INTERPRETER_NO_THREAD);
            let detail = Detail::new(0, unreadable::NO_THREAD);
            push(scratch, runtime::PERL, 0, detail);
        }
    }
}

/// Begins with a native frame, or adds its next frame: Linux 5.10 verifies no loop over several.
#[unsafe(no_mangle)]
#[inline(never)]
pub extern "C" fn add_perl_frames(handle: ScratchHandle) -> u32 {
    let (Some(scratch), Some(settings)) = (Scratch::from_handle(handle), maps::settings()) else {
        return CONTINUE;
    };
    let Some(interpreter) = interpreter::interpreter(scratch.native.file) else {
        scratch.interpreter_stage = stage::NATIVE;
        return CONTINUE;
    };
    let layout = &interpreter.perl;
    let native = scratch.native;
    let mut walk = scratch.perl;
    if scratch.interpreter_stage == stage::PERL_ENTER {
        let around = Around {
            is_leaf: scratch.depth == 0,
            leaf: scratch.first.registers.ip.wrapping_sub(native.state),
            leaf_sp: scratch.first.registers.sp,
            caller: scratch.walk.registers.ip.wrapping_sub(native.state),
        };
        scratch.interpreter_stage = stage::PERL;
        if !walk.enter(layout, &native, &around, scratch) {
            scratch.interpreter_stage = stage::NATIVE;
        }
        scratch.perl = walk;
        return CONTINUE;
    }
    // The native walk ends the stack.
    if scratch.depth >= settings.max_frames || !has_room(scratch) {
        return CONTINUE;
    }
    let step = walk.step(layout, scratch);
    scratch.perl = walk;
    if let Step::Frame(function, detail) | Step::Last(function, detail) = step {
        if function == 0 {
            maps::count(counter::INTERPRETER_UNREADABLE);
        }
        push(scratch, runtime::PERL, function, detail);
    }
    if !matches!(step, Step::Frame(..) | Step::Skip) {
        scratch.interpreter_stage = stage::NATIVE;
    }
    CONTINUE
}
