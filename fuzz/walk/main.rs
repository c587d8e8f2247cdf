//! The stack walk of the BPF programs: their own code, compiled for this machine and run on the processes, mappings,
//! tables, stacks and registers described by the input.
//!
//! * It terminates with no more frames than allowed, and only reads memory through the kernel helpers.
//! * It agrees with a naive walk that reads word by word, scans lists and caches nothing.
//! * It yields the same result again, and with the caches filled by earlier samples, even if mappings changed and
//!   tables were added in between.
//! * With damaged kernel structures, tables or interpreter state it still terminates.
//!
//! With `--address` (`cargo xtask fuzz`) AddressSanitizer also checks each pointer of the programs.

#![cfg_attr(fuzzing, no_main)]
#![allow(unexpected_cfgs, reason = "a feature of the programs")]
#![expect(unsafe_code, reason = "the programs read and write memory by address")]

// Resolves the programs' imports to this crate.
extern crate self as aya_ebpf;

mod arena;
#[path = "../../ebpf/programs/src/beam.rs"]
mod beam;
mod bytes;
#[path = "../../ebpf/programs/src/dotnet.rs"]
mod dotnet;
mod files;
#[expect(dead_code, reason = "processes are looked up elsewhere")]
#[path = "../../ebpf/programs/src/frame_cache.rs"]
mod frame_cache;
mod helpers;
#[path = "../../ebpf/programs/src/hotspot.rs"]
mod hotspot;
#[path = "../../ebpf/programs/src/interpreter.rs"]
mod interpreter;
#[path = "../../ebpf/programs/src/kernel.rs"]
mod kernel;
mod kernel_image;
#[path = "../../ebpf/programs/src/luajit.rs"]
mod luajit;
mod maps;
mod naive;
#[path = "../../ebpf/programs/src/perl.rs"]
mod perl;
#[path = "../../ebpf/programs/src/php.rs"]
mod php;
mod process;
mod published;
#[path = "../../ebpf/programs/src/ruby.rs"]
mod ruby;
#[path = "../../ebpf/programs/src/scratch.rs"]
mod scratch;
mod stage;
#[path = "../../ebpf/programs/src/stages.rs"]
mod stages;
mod tables;
#[expect(dead_code, reason = "executables are looked up elsewhere")]
#[path = "../../ebpf/programs/src/unwind.rs"]
mod unwind;
#[path = "../../ebpf/programs/src/v8.rs"]
mod v8;

use profcol_ebpf_common::architecture::X86_64 as Target;
use profcol_ebpf_common::reason::EndReason;
use profcol_ebpf_common::record::{MAX_USER_FRAMES, MAX_USER_WORDS};
use profcol_ebpf_common::sample_counts::StackHash;
use profcol_ebpf_common::walk::{CodeMapping, Walk};
use profcol_fuzz::fuzz_target;

use crate::bytes::Bytes;
use crate::process::{Process, Thread};
use crate::scratch::Scratch;
use crate::unwind::{CONTINUE, FRAMES_PER_CALL, NO_WINDOW, NO_WINDOW_BYTES};

/// Samples per process.
const MAX_SAMPLES: usize = 6;

fuzz_target!(|data: &[u8]| {
    let mut bytes = Bytes::new(data);
    stage::enter(Process::any(&mut bytes));
    let mut scratch = new_scratch();
    for _ in 0..MAX_SAMPLES {
        if bytes.is_empty() {
            break;
        }
        stage::change(|process| process.change(&mut bytes));
        let thread = stage::with(|process| Thread::any(&mut bytes, process));
        stage::with(|process| check(process, &thread, &mut scratch));
    }
});

/// Zeroed, like a new map in the kernel.
fn new_scratch() -> Box<Scratch> {
    // SAFETY: integers, and an enum whose `None` is zero.
    unsafe { Box::<Scratch>::new_zeroed().assume_init() }
}

fn check(process: &Process, thread: &Thread, scratch: &mut Scratch) {
    scratch.sample.kernel_frames = thread.kernel_frames;
    scratch.mm = process.mm();
    let epoch = frame_cache::epoch(&process.layout(), scratch.mm, &process.sample());
    let fresh = walk(thread, frame_cache::NO_EPOCH, scratch);
    assert!(scratch.depth <= thread.max_frames);
    assert!(fresh.frames.len() <= MAX_USER_WORDS);
    let reason = EndReason::from_code(fresh.end);
    assert!(reason.is_some(), "invalid end reason: {}", fresh.end);
    for _ in 0..2 {
        let frame_cache = walk(thread, epoch, scratch);
        assert_eq!(frame_cache, fresh, "cached walk differs from a fresh one");
    }
    if process.is_sound {
        let (frames, end) = naive::walk(process, thread);
        assert_eq!(
            (fresh.frames, fresh.end),
            (frames, end as u32),
            "the programs' walk differs from the naive walk"
        );
    }
}

#[derive(Debug, PartialEq)]
struct WalkResult {
    frames: Vec<u64>,
    end: u32,
    hash: StackHash,
}

/// Like the program `sample`.
fn walk(thread: &Thread, epoch: u64, scratch: &mut Scratch) -> WalkResult {
    scratch.epoch = epoch;
    scratch.sample.user_words = 0;
    scratch.depth = 0;
    scratch.python_file = 0;
    scratch.php_file = 0;
    scratch.perl_file = 0;
    scratch.luajit_file = 0;
    scratch.loop_registers = thread.loop_registers;
    scratch.ruby_file = 0;
    scratch.ruby_loop = 0;
    scratch.runtime_looked_up = 0;
    scratch.v8_file = 0;
    scratch.v8_looked_up = 0;
    scratch.v8_skipped = 0;
    scratch.java_looked_up = 0;
    scratch.beam_looked_up = 0;
    scratch.dotnet_looked_up = 0;
    scratch.java_registers = thread.java_registers;
    scratch.interpreter_stage = interpreter::stage::NATIVE;
    scratch.sample.stack = StackHash::default();
    scratch.walk = Walk {
        registers: thread.registers,
        exact: u32::from(thread.is_exact),
        ..Walk::default()
    };
    scratch.first = scratch.walk;
    scratch.first_stack = scratch.sample.stack;
    scratch.code = CodeMapping::default();
    for code in &mut scratch.recent_code {
        code.end = 0;
    }
    scratch.recent_next = 0;
    scratch.address_bits = u64::MAX;
    scratch.anonymous.start = 0;
    scratch.window_at = NO_WINDOW;
    scratch.window_bytes = NO_WINDOW_BYTES;
    let mut end = EndReason::Truncated as u32;
    for _ in 0..2 * MAX_USER_FRAMES as u32 / FRAMES_PER_CALL {
        let climbed = unwind::walk_frames(scratch, thread.max_frames);
        if climbed != CONTINUE {
            end = climbed;
            break;
        }
    }
    let first = scratch.sample.kernel_frames as usize;
    let frames = first..first + scratch.sample.user_words as usize;
    WalkResult {
        frames: scratch.frames[frames].to_vec(),
        end,
        hash: scratch.sample.stack,
    }
}
