//! Adds the frames of interpreted code behind the native frames that run them.

use aya_ebpf::helpers::generated::{bpf_get_current_task, bpf_probe_read_user};
use profcol_ebpf_common::barrier_var;
use profcol_ebpf_common::counter;
use profcol_ebpf_common::frame::Frame;
use profcol_ebpf_common::interpreter::{
    BLOCK_BYTES, BLOCK_WORDS, BlockMemory, Detail, Interpreter, RuntimeProcess, Step, python,
    runtime, unreadable,
};
use profcol_ebpf_common::record::{MAX_USER_WORDS, ThreadKey};

use crate::kernel;
use crate::maps::{self, INTERPRETERS, PYTHON_THREADS, RUNTIME_PROCESSES};
use crate::scratch::{FRAME_CAPACITY, Scratch, ScratchHandle};
use crate::unwind::CONTINUE;
use crate::{php, ruby, v8};

/// What the walk does next: the native one, [`find_thread`], [`add_frames`], or what another runtime has.
pub mod stage {
    /// Nothing: the native walk goes on.
    pub const NATIVE: u32 = 0;
    /// Look for the thread among those that the runtime knows.
    pub const FIND_THREAD: u32 = 1;
    /// Begin with the frames of the native frame.
    pub const ENTER: u32 = 2;
    pub const FRAMES: u32 = 3;
    /// The function of a frame of JavaScript.
    pub const V8: u32 = 4;
    /// A frame of Java code.
    pub const HOTSPOT: u32 = 5;
    /// A frame of Ruby's file, and the frames that it runs.
    pub const RUBY_ENTER: u32 = 6;
    pub const RUBY: u32 = 7;
    /// The frames of PHP.
    pub const PHP: u32 = 9;
    /// Code that Ruby or PHP generated.
    pub const GENERATED: u32 = 8;
}

/// Per call; the rest is left to the next one.
const THREADS_PER_CALL: u32 = 64;
const FRAMES_PER_CALL: u32 = 4;

/// Calls of [`find_thread`] for one sample: 2048 threads.
const MAX_THREAD_CALLS: u32 = 32;

/// Whether there is room for another frame of either kind.
#[inline(always)]
pub fn has_room(scratch: &Scratch) -> bool {
    scratch.sample.user_words + 2 <= MAX_USER_WORDS as u32
}

/// Prepares for the interpreted frames of a native one, which the walk just left. `fp` is its frame
/// pointer.
#[inline(always)]
pub fn meet(scratch: &mut Scratch, address: u64, sp: u64, fp: u64) {
    scratch.v8_frame = fp;
    if scratch.frame.file() == scratch.v8_file {
        v8::meet(scratch);
        return;
    }
    // What it runs takes its place.
    scratch.depth -= 1;
    scratch.native.sp = sp;
    scratch.native.cfa = scratch.walk.registers.sp;
    scratch.native.state = address.wrapping_sub(scratch.frame.offset());
    scratch.native.file = scratch.frame.file();
    if scratch.native.file == scratch.ruby_file {
        ruby::meet(scratch);
        return;
    }
    if scratch.native.file == scratch.php_file {
        scratch.interpreter_stage = stage::PHP;
        return;
    }
    scratch.interpreter_stage = stage::ENTER;
    if scratch.python_file != scratch.native.file {
        scratch.python_file = scratch.native.file;
        scratch.thread = 0;
        scratch.thread_calls = 0;
        scratch.has_thread = 0;
        scratch.interpreter_stage = stage::FIND_THREAD;
    }
}

/// Remembers that the process has the runtime of this file. If it was not known to have it and its generated
/// code was met, the stack is walked again with that knowledge.
#[inline(always)]
fn remember(scratch: &mut Scratch) {
    let process = RuntimeProcess {
        state: scratch.native.state,
        file: scratch.native.file,
        unused: 0,
    };
    let is_known = scratch.runtime_looked_up != 0 && scratch.runtime_process.file != 0;
    scratch.runtime_looked_up = 1;
    scratch.runtime_process = process;
    // SAFETY: plain numbers.
    let known = unsafe { RUNTIME_PROCESSES.get(&scratch.sample.process) };
    if known.is_none_or(|known| *known != process) {
        let _ = RUNTIME_PROCESSES.insert(&scratch.sample.process, &process, 0);
    }
    if !is_known && scratch.v8_skipped != 0 {
        v8::walk_again(scratch);
    }
}

/// Whether the current frame is one of code that Ruby or PHP generated, as far as is known.
#[inline(always)]
pub fn meet_generated(scratch: &mut Scratch) -> bool {
    if scratch.runtime_looked_up == 0 {
        scratch.runtime_looked_up = 1;
        // SAFETY: plain numbers.
        let known = unsafe { RUNTIME_PROCESSES.get(&scratch.sample.process) };
        scratch.runtime_process = known.copied().unwrap_or_default();
    }
    if scratch.runtime_process.file == 0 {
        return false;
    }
    scratch.interpreter_stage = stage::GENERATED;
    true
}

/// Leaves generated code for the function of the runtime that called it, behind which are the frames of
/// the code.
#[unsafe(no_mangle)]
#[inline(never)]
pub extern "C" fn leave_generated(handle: ScratchHandle) -> u32 {
    let (Some(scratch), Some(settings)) = (Scratch::from_handle(handle), maps::settings()) else {
        return CONTINUE;
    };
    scratch.interpreter_stage = stage::NATIVE;
    let process = scratch.runtime_process;
    // Where this fails it is code of anybody.
    scratch.runtime_process.file = 0;
    let Some(interpreter) = interpreter(process.file) else {
        return CONTINUE;
    };
    let left = if interpreter.runtime == runtime::PHP {
        let registers = scratch.walk.registers;
        interpreter
            .php
            .leave_generated(&registers, process.state, scratch)
    } else {
        ruby::leave_generated(scratch, settings, interpreter, process)
    };
    // It may have been mapped over the function itself.
    if let Some(registers) = left
        && registers.ip != scratch.walk.registers.ip
    {
        scratch.runtime_process.file = process.file;
        scratch.walk.registers = registers;
        scratch.walk.exact = 1;
    }
    CONTINUE
}

/// Looks for the thread's state, and begins the walk along its frames.
#[unsafe(no_mangle)]
#[inline(never)]
pub extern "C" fn find_thread(handle: ScratchHandle) -> u32 {
    let (Some(scratch), Some(settings)) = (Scratch::from_handle(handle), maps::settings()) else {
        return CONTINUE;
    };
    let file = scratch.native.file;
    let Some(interpreter) = interpreter(file) else {
        scratch.interpreter_stage = stage::NATIVE;
        scratch.python_file = 0;
        return CONTINUE;
    };
    if interpreter.runtime == runtime::V8 {
        scratch.python_file = 0;
        scratch.depth += 1;
        v8::meet_file(scratch, file);
        return CONTINUE;
    }
    if interpreter.runtime == runtime::RUBY {
        scratch.python_file = 0;
        ruby::meet_file(scratch, file);
        remember(scratch);
        return CONTINUE;
    }
    if interpreter.runtime == runtime::PHP {
        scratch.python_file = 0;
        php::meet_file(scratch, file, interpreter.state);
        remember(scratch);
        return CONTINUE;
    }
    let layout = &interpreter.python;
    // SAFETY: the helper has no preconditions.
    let task = unsafe { bpf_get_current_task() };
    let thread_pointer = task.wrapping_add(settings.layout.task_thread_pointer);
    let Some(thread_pointer) = kernel::word(thread_pointer) else {
        return no_thread(scratch);
    };
    let key = ThreadKey {
        process: scratch.sample.process,
        thread: scratch.sample.thread,
        file,
    };
    let state = scratch.native.state.wrapping_add(interpreter.state);
    let mut thread = scratch.thread;
    let mut owner = scratch.thread_owner;
    if scratch.thread_calls == 0 {
        owner = scratch
            .word(state.wrapping_add(layout.runtime_interpreters.into()))
            .unwrap_or(0);
        // Only of the newest interpreter: one that is started runs before the one that started it.
        // SAFETY: a word is read atomically.
        if let Some(&known) = unsafe { PYTHON_THREADS.get(&key) }
            && scratch.word(known.wrapping_add(layout.thread_id.into())) == Some(thread_pointer)
            && scratch.word(known.wrapping_add(layout.thread_interpreter.into())) == Some(owner)
            && begin(scratch, layout, known)
        {
            scratch.thread_owner = owner;
            return CONTINUE;
        }
        thread = scratch
            .word(owner.wrapping_add(layout.interpreter_threads.into()))
            .unwrap_or(0);
    }
    for _ in 0..THREADS_PER_CALL {
        if thread == 0 {
            // Subinterpreters have threads of their own.
            owner = scratch
                .word(owner.wrapping_add(layout.interpreter_next.into()))
                .unwrap_or(0);
            if owner == 0 {
                scratch.thread_owner = 0;
                return no_thread(scratch);
            }
            thread = scratch
                .word(owner.wrapping_add(layout.interpreter_threads.into()))
                .unwrap_or(0);
            continue;
        }
        // A thread has a state in each subinterpreter that it was in; all but one are idle.
        if scratch.word(thread.wrapping_add(layout.thread_id.into())) == Some(thread_pointer)
            && begin(scratch, layout, thread)
        {
            let _ = PYTHON_THREADS.insert(&key, &thread, 0);
            scratch.thread_owner = owner;
            return CONTINUE;
        }
        thread = scratch
            .word(thread.wrapping_add(layout.thread_next.into()))
            .unwrap_or(0);
    }
    scratch.thread = thread;
    scratch.thread_owner = owner;
    scratch.thread_calls += 1;
    if scratch.thread_calls >= MAX_THREAD_CALLS {
        return no_thread(scratch);
    }
    CONTINUE
}

/// Begins the walk along the thread's frames; false if it has none.
#[inline(always)]
fn begin(scratch: &mut Scratch, layout: &python::Layout, thread: u64) -> bool {
    match python::Walk::begin(layout, thread, scratch) {
        Some(walk) if walk.frame == 0 => return false,
        Some(walk) => scratch.python = walk,
        None => scratch.python = python::Walk::lost(),
    }
    scratch.has_thread = 1;
    scratch.interpreter_stage = stage::ENTER;
    true
}

/// The interpreter is starting or ending, or the thread is not one of its own.
#[inline(always)]
fn no_thread(scratch: &mut Scratch) -> u32 {
    scratch.python = python::Walk::default();
    scratch.interpreter_stage = stage::NATIVE;
    if scratch.has_thread == 0 {
        maps::count(counter::INTERPRETER_NO_THREAD);
        push(
            scratch,
            runtime::PYTHON,
            0,
            Detail::new(0, unreadable::NO_THREAD),
        );
    }
    CONTINUE
}

/// Adds some frames of the native frame.
#[unsafe(no_mangle)]
#[inline(never)]
pub extern "C" fn add_frames(handle: ScratchHandle) -> u32 {
    let (Some(scratch), Some(settings)) = (Scratch::from_handle(handle), maps::settings()) else {
        return CONTINUE;
    };
    let Some(interpreter) = interpreter(scratch.native.file) else {
        scratch.interpreter_stage = stage::NATIVE;
        return CONTINUE;
    };
    let layout = &interpreter.python;
    let native = scratch.native;
    let mut walk = scratch.python;
    if scratch.interpreter_stage == stage::ENTER {
        scratch.entered = walk;
        scratch.entered_words = scratch.sample.user_words;
        scratch.entered_depth = scratch.depth;
        scratch.entered_stack = scratch.sample.stack;
        scratch.interpreter_stage = stage::FRAMES;
        if let Err(step) = walk.enter(layout, &native, scratch) {
            scratch.python = walk;
            scratch.interpreter_stage = stage::NATIVE;
            if let Step::Last(function, detail) = step {
                push_and_count(scratch, function, detail);
            }
            return CONTINUE;
        }
    }
    if walk.frame == 0 && scratch.thread_owner != 0 {
        // The interpreter that started this one runs the frames below.
        scratch.thread = 0;
        scratch.thread_calls += 1;
        scratch.interpreter_stage = stage::FIND_THREAD;
        return CONTINUE;
    }
    for _ in 0..FRAMES_PER_CALL {
        // The native walk ends the stack.
        if scratch.depth >= settings.max_frames || !has_room(scratch) {
            break;
        }
        let step = walk.step(layout, &native, scratch);
        scratch.python = walk;
        match step {
            Step::Frame(function, detail) => push(scratch, runtime::PYTHON, function, detail),
            Step::Last(function, detail) => {
                push_and_count(scratch, function, detail);
                scratch.interpreter_stage = stage::NATIVE;
                return CONTINUE;
            }
            Step::Skip => {}
            Step::End => {
                scratch.interpreter_stage = stage::NATIVE;
                return CONTINUE;
            }
            Step::NotEntered => {
                scratch.python = scratch.entered;
                scratch.sample.user_words = scratch.entered_words;
                scratch.depth = scratch.entered_depth;
                scratch.sample.stack = scratch.entered_stack;
                scratch.interpreter_stage = stage::NATIVE;
                return CONTINUE;
            }
        }
    }
    CONTINUE
}

#[inline(always)]
pub fn interpreter(file: u32) -> Option<&'static Interpreter> {
    // SAFETY: plain numbers. The loader may replace them meanwhile; whatever they are, each read is checked.
    unsafe { INTERPRETERS.get(&file) }
}

#[inline(always)]
fn push_and_count(scratch: &mut Scratch, function: u64, detail: Detail) {
    if function == 0 {
        maps::count(counter::INTERPRETER_UNREADABLE);
    }
    push(scratch, runtime::PYTHON, function, detail);
}

#[inline(always)]
pub fn push(scratch: &mut Scratch, runtime: u32, function: u64, detail: Detail) {
    let frame = Frame::interpreted(runtime, function);
    let slot = (scratch.sample.kernel_frames + scratch.sample.user_words) as usize;
    // SAFETY: the masks bound the indices.
    unsafe {
        let frames = scratch.frames.as_mut_ptr();
        *frames.add(slot & (FRAME_CAPACITY - 1)) = frame.0;
        *frames.add((slot + 1) & (FRAME_CAPACITY - 1)) = detail.0;
    }
    scratch.sample.user_words += 2;
    scratch.depth += 1;
    scratch.has_interpreted = 1;
    scratch.sample.stack.add(frame.0);
    scratch.sample.stack.add(detail.0);
}

impl BlockMemory for Scratch {
    #[inline(always)]
    fn load_block(&mut self, address: u64, bytes: u32) -> bool {
        let mut bytes = barrier_var(u64::from(bytes));
        if bytes > u64::from(BLOCK_BYTES) {
            bytes = u64::from(BLOCK_BYTES);
        }
        // SAFETY: the helper checks the address; the block is large enough.
        let failed = unsafe {
            bpf_probe_read_user(
                self.block.as_mut_ptr().cast(),
                bytes as u32,
                address as *const _,
            )
        };
        failed == 0
    }

    #[inline(always)]
    fn block_word(&self, index: u32) -> u64 {
        let index = barrier_var(u64::from(index)) as usize & (BLOCK_WORDS - 1);
        // SAFETY: the mask bounds the index.
        unsafe { *self.block.as_ptr().add(index) }
    }

    #[inline(always)]
    fn word(&mut self, address: u64) -> Option<u64> {
        // SAFETY: the helper checks the address.
        let failed = unsafe {
            bpf_probe_read_user(
                (&raw mut self.interpreter_word).cast(),
                8,
                address as *const _,
            )
        };
        (failed == 0).then_some(self.interpreter_word)
    }
}
