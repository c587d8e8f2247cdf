//! Perl 5.28 to 5.42, with threads and without.
//!
//! Detection uses symbols that the runtime exports for extensions, which `strip` keeps: the loop
//! `Perl_runops_standard` and the version; with threads the variable or key of a thread's interpreter, without
//! the global variables. Functions that are not exported by each version are found by the table of operations.

mod function;
mod layout;

use std::ops::Range;

use iced_x86::{Decoder, DecoderOptions, FlowControl};
use profcol_ebpf_common::interpreter::perl::{self, place};
use profcol_ebpf_common::interpreter::thread_variable::{self, ThreadVariable};
use profcol_ebpf_common::interpreter::{Interpreter, runtime};
use profcol_ebpf_unwind::Index;
use profcol_elf::{Machine, Source};

pub use self::function::{Statement, generation};
pub use self::layout::NameLayout;
use crate::detected_interpreter::{DetectedInterpreter, RuntimeLayout};
use crate::elf_file::{ElfFile, ThreadLocal};
use crate::version::Version;
use crate::{Runtime, Unsupported, jumps};

const LOOP: &str = "Perl_runops_standard";
const VERSION: [&str; 3] = ["PL_revision", "PL_version", "PL_subversion"];
/// The current interpreter of a Perl with threads: a thread-local variable, in older versions a `pthread` key.
const INTERPRETER: &str = "PL_current_context";
const INTERPRETER_KEY: &str = "PL_thr_key";
/// The globals of a Perl without threads.
const GLOBALS: [&str; 3] = ["PL_op", "PL_curcop", "PL_curstackinfo"];
/// The functions of operations, and their names.
const OPERATIONS: &str = "PL_ppaddr";
const OPERATION_NAMES: &str = "PL_op_name";
const ENTER_FUNCTION: &str = "entersub";
const ENTER_TRY: &str = "entertry";
/// 5.42 has 425.
const MAX_OPERATIONS: usize = 512;
const MAX_NAME_BYTES: usize = 16;
/// The largest `pp_entersub` seen has 2 KiB.
const MAX_OPERATION_BYTES: u64 = 16 << 10;

pub fn detect<S: Source + ?Sized>(
    executable: &ElfFile<'_, S>,
) -> Result<Option<DetectedInterpreter>, Unsupported> {
    let [entry, revision, version, patch] =
        executable.symbols([LOOP, VERSION[0], VERSION[1], VERSION[2]]);
    let (Some(entry), Some(revision)) = (entry, revision) else {
        return Ok(None);
    };
    let number = |symbol: Option<crate::elf_file::FoundSymbol>| {
        executable.loaded(symbol?.address, 1)?.first().copied()
    };
    let numbers = (number(Some(revision)), number(version), number(patch));
    let (Some(major), Some(minor), Some(patch)) = numbers else {
        return Err(unsupported(
            Unsupported::UNKNOWN_VERSION,
            "the version is not in the file",
        ));
    };
    let version = Version {
        major,
        minor,
        patch,
    };
    let refuse = |why| unsupported(&version.to_string(), why);
    let (layout, mut names) = layout::layouts(version).map_err(refuse)?;
    if executable.machine() == Machine::Aarch64 {
        return Err(refuse("it is not supported on aarch64 yet"));
    }
    let Some(delta) = executable.code_delta(entry.address) else {
        return Err(refuse("its loop is not in a loaded segment"));
    };
    let Some((state, layout)) = interpreter(executable, layout, delta) else {
        return Err(refuse("the interpreter of threads was not found"));
    };
    names.file_is_glob = layout.file_is_glob != 0;
    let offsets = |range: Option<Range<u64>>| {
        let range = range.unwrap_or_default();
        let offset = |at: u64| u32::try_from(at.wrapping_sub(delta)).unwrap_or_default();
        (offset(range.start), offset(range.end))
    };
    let [enter, enter_try] = operations(executable);
    let (enter_start, enter_end) = offsets(enter);
    let (catch_start, catch_end) = offsets(enter_try.and_then(|it| tail_call(executable, it)));
    let size = entry.size.min(jumps::MAX_FUNCTION_BYTES);
    let range = entry.address..entry.address.saturating_add(size);
    Ok(Some(DetectedInterpreter {
        runtime: Runtime::Perl,
        version: version.to_string(),
        loops: jumps::parts(executable, range, delta),
        forwarders: Vec::new(),
        interpreter: Interpreter {
            state: state.wrapping_sub(delta),
            runtime: runtime::PERL,
            perl: perl::Layout {
                enter_start,
                enter_end,
                catch_start,
                catch_end,
                ..layout
            },
            ..Interpreter::default()
        },
        layout: RuntimeLayout::Perl(names),
    }))
}

/// The address of the state, and the layout with the way to a thread's interpreter.
fn interpreter<S: Source + ?Sized>(
    executable: &ElfFile<'_, S>,
    layout: perl::Layout,
    delta: u64,
) -> Option<(u64, perl::Layout)> {
    let variable = |place| ThreadVariable {
        place,
        offset: 0,
        table_shift: executable.thread_table_shift(),
    };
    let with = |place, interpreter| perl::Layout {
        place,
        interpreter,
        ..layout
    };
    if let Some(found) = executable.thread_local(INTERPRETER) {
        let (state, kind) = match found {
            ThreadLocal::Module(slot) => (slot, thread_variable::place::MODULE),
            ThreadLocal::Offset(slot) => (slot, thread_variable::place::OFFSET),
        };
        return Some((state, with(place::VARIABLE, variable(kind))));
    }
    let [operation, statement, stack_info] = executable.symbols(GLOBALS);
    if let (Some(operation), Some(statement), Some(stack_info)) = (operation, statement, stack_info)
    {
        let offset = |at: u64| u32::try_from(at.wrapping_sub(delta)).ok();
        let layout = perl::Layout {
            place: place::GLOBAL,
            operation: offset(operation.address)?,
            statement: offset(statement.address)?,
            stack_info: offset(stack_info.address)?,
            file_is_glob: 1,
            ..layout
        };
        return Some((delta, layout));
    }
    let [key] = executable.symbols([INTERPRETER_KEY]);
    let layout = with(place::VALUE, variable(thread_variable::place::KEY));
    Some((key?.address, layout))
}

/// The functions of two operations.
fn operations<S: Source + ?Sized>(executable: &ElfFile<'_, S>) -> [Option<Range<u64>>; 2] {
    let wanted = [ENTER_FUNCTION, ENTER_TRY];
    let [functions, names] = executable.symbols([OPERATIONS, OPERATION_NAMES]);
    let (Some(functions), Some(names)) = (functions, names) else {
        return [None, None];
    };
    let count = (functions.size.min(names.size) / 8).min(MAX_OPERATIONS as u64) as usize;
    let names = executable.pointers(names.address, count);
    let functions = executable.pointers(functions.address, count);
    let index = Index::open(executable.code, executable.source).ok();
    wanted.map(|wanted| {
        let is_wanted = |&address: &u64| {
            let text = executable.loaded(address, MAX_NAME_BYTES);
            text.is_some_and(|text| text.split(|&byte| byte == 0).next() == Some(wanted.as_bytes()))
        };
        let function = *functions.get(names.iter().position(is_wanted)?)?;
        let range = index.as_ref()?.function(executable.source, function)?;
        (range.end - range.start <= MAX_OPERATION_BYTES).then_some(range)
    })
}

/// The function to which the last jump of this one goes.
fn tail_call<S: Source + ?Sized>(
    executable: &ElfFile<'_, S>,
    function: Range<u64>,
) -> Option<Range<u64>> {
    let size = usize::try_from(function.end - function.start).ok()?;
    let code = executable.loaded(function.start, size)?;
    let decoder = Decoder::with_ip(64, &code, function.start, DecoderOptions::NONE);
    let jumps = decoder.into_iter().filter(|instruction| {
        instruction.flow_control() == FlowControl::UnconditionalBranch
            && !function.contains(&instruction.near_branch_target())
    });
    let target = jumps.last()?.near_branch_target();
    let index = Index::open(executable.code, executable.source).ok()?;
    let range = index.function(executable.source, target)?;
    (range.start == target && range.end - range.start <= MAX_OPERATION_BYTES).then_some(range)
}

/// The supported versions.
pub fn versions() -> Vec<String> {
    let supported = Version::first_releases().filter(|it| layout::layouts(*it).is_ok());
    supported.map(Version::minor_version).collect()
}

/// One example of each layout.
pub fn examples() -> Vec<DetectedInterpreter> {
    let versions = [
        (28, false),
        (32, false),
        (34, false),
        (36, false),
        (42, true),
    ];
    let example = |(minor, file_is_glob)| {
        let version = Version {
            major: 5,
            minor,
            patch: 0,
        };
        let (_, names) = layout::layouts(version).ok()?;
        Some(DetectedInterpreter {
            runtime: Runtime::Perl,
            version: version.to_string(),
            loops: Vec::new(),
            forwarders: Vec::new(),
            interpreter: Interpreter {
                runtime: runtime::PERL,
                ..Interpreter::default()
            },
            layout: RuntimeLayout::Perl(NameLayout {
                file_is_glob,
                ..names
            }),
        })
    };
    versions.into_iter().filter_map(example).collect()
}

fn unsupported(version: &str, why: &'static str) -> Unsupported {
    Unsupported {
        runtime: Runtime::Perl.title(),
        version: version.into(),
        why,
    }
}
