//! Adds PHP frames after the native frames of `execute_ex`, whose rules are marked.

use profcol_ebpf_common::counter;
use profcol_ebpf_common::interpreter::php::Walk;
use profcol_ebpf_common::interpreter::{BlockMemory, Interpreter, Step, runtime};

use crate::interpreter::{has_room, push, stage};
use crate::maps;
use crate::scratch::{Scratch, ScratchHandle};
use crate::unwind::CONTINUE;

/// Per call; the next call continues.
const FRAMES_PER_CALL: u32 = 4;

/// The file is PHP's: begins the walk at the current frame.
#[inline(always)]
pub fn begin_walk(scratch: &mut Scratch, file: u32, interpreter: &Interpreter) {
    let at = scratch.native.state.wrapping_add(interpreter.state);
    let frame = scratch.word(at);
    scratch.php_file = file;
    scratch.php = Walk {
        frame: frame.unwrap_or(0),
        loop_frame: scratch.loop_registers[1],
        loop_instruction: scratch.loop_registers[0],
        is_leaf: u64::from(scratch.depth == 0),
        is_lost: u64::from(frame.is_none()),
        function_file: interpreter.php.function_file.into(),
    };
    scratch.interpreter_stage = stage::PHP;
}

/// Adds some frames of the native frame.
#[unsafe(no_mangle)]
#[inline(never)]
pub extern "C" fn add_php_frames(handle: ScratchHandle) -> u32 {
    let (Some(scratch), Some(settings)) = (Scratch::from_handle(handle), maps::settings()) else {
        return CONTINUE;
    };
    let mut walk = scratch.php;
    for _ in 0..FRAMES_PER_CALL {
        // The native walk ends the stack.
        if scratch.depth >= settings.max_frames || !has_room(scratch) {
            break;
        }
        match walk.step(scratch) {
            Step::Frame(function, detail) => push(scratch, runtime::PHP, function, detail),
            Step::Last(function, detail) => {
                if function == 0 {
                    maps::count(counter::INTERPRETER_UNREADABLE);
                }
                push(scratch, runtime::PHP, function, detail);
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
    scratch.php = walk;
    CONTINUE
}
