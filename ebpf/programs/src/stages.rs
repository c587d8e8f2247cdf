//! Runs one stage of a walk that is not native: an interpreter's frames, or a frame of code that a runtime generated.

use profcol_ebpf_common::barrier_var;
use profcol_ebpf_common::reason::EndReason;

use crate::interpreter::{self, stage};
use crate::scratch::{Scratch, ScratchHandle};
use crate::unwind::CONTINUE;
use crate::{beam, dotnet, hotspot, luajit, perl, php, ruby, v8};

/// Returns `CONTINUE` or an end reason. A function of its own: in the loop over the frames the verifier would process
/// each of these calls once per frame.
#[unsafe(no_mangle)]
#[inline(never)]
pub extern "C" fn run_stage(handle: ScratchHandle) -> u32 {
    let Some(scratch) = Scratch::from_handle(handle) else {
        return EndReason::NoRegisters as u32;
    };
    match scratch.interpreter_stage {
        stage::HOTSPOT => {
            let next = barrier_var(u64::from(hotspot::find(scratch.handle()))) as u32;
            match next {
                hotspot::INTERPRETED => return hotspot::leave_interpreted(scratch.handle()),
                hotspot::COMPILED => return hotspot::leave_compiled(scratch.handle()),
                hotspot::STUB => return hotspot::leave_stub(scratch.handle()),
                end => return end,
            }
        }
        stage::BEAM_ENTER => return beam::enter(scratch.handle()),
        stage::BEAM => return beam::add_caller(scratch.handle()),
        stage::BEAM_LEAVE => return beam::leave(scratch.handle()),
        stage::LUAJIT_FIND => return luajit::search_luajit(scratch.handle()),
        stage::LUAJIT_ENTER => luajit::enter_luajit(scratch.handle()),
        stage::LUAJIT => luajit::add_luajit_frames(scratch.handle()),
        stage::V8 => v8::add_function(scratch.handle()),
        stage::RUBY_ENTER => ruby::enter_ruby(scratch.handle()),
        stage::RUBY => ruby::add_ruby_frames(scratch.handle()),
        stage::GENERATED => interpreter::leave_generated(scratch.handle()),
        stage::PHP => php::add_php_frames(scratch.handle()),
        stage::PERL_ENTER | stage::PERL => perl::add_perl_frames(scratch.handle()),
        stage::FIND_THREAD => interpreter::find_thread(scratch.handle()),
        stage::ENTER | stage::FRAMES => interpreter::add_frames(scratch.handle()),
        _ => dotnet::find_rule(scratch.handle()),
    };
    CONTINUE
}
