//! V8 of Node.js 16 to 26: JavaScript as bytecode, as generated code, and V8's own builtins.
//!
//! Detection uses the constants that V8 exports for debuggers, `v8dbg_*`, which `strip` keeps, and its version.

mod code;
mod function;
mod functions;
mod heap;
mod layout;
mod positions;
mod process;
mod script;
mod scripts;
mod tagged;
#[cfg(test)]
mod tests;

use std::ops::Range;

use profcol_ebpf_common::interpreter::{Interpreter, runtime};
use profcol_elf::Source;

use self::function::Function;
use self::heap::Heap;
pub use self::layout::HeapLayout;
use self::layout::{BytecodeSizes, NEWEST, OLDEST, Version};
pub use self::process::{FrameFunctions, ProcessCache};
use crate::detected_interpreter::{DetectedInterpreter, RuntimeLayout};
use crate::elf_file::ElfFile;
use crate::memory::Memory;
use crate::{FunctionError, Runtime, Unsupported};

const VERSION: [&str; 3] = [
    "_ZN2v88internal7Version6major_E",
    "_ZN2v88internal7Version6minor_E",
    "_ZN2v88internal7Version6build_E",
];
const CONSTANTS: &str = "v8dbg_";
const BYTECODE_SIZES: &str = "_ZN2v88internal11interpreter9Bytecodes14kBytecodeSizesE";
/// Minimum size of all builtins together.
const MIN_BUILTINS_BYTES: u64 = 512 << 10;
const BUILTIN: &str = "Builtins_";
/// Name suffixes of builtins that call or interpret a function.
const CARRIES_CALLS: &[&str] = &[
    "Handler",
    "JSEntry",
    "JSConstructEntry",
    "JSEntryTrampoline",
    "JSConstructEntryTrampoline",
    "JSRunMicrotasksEntry",
];
const CARRIES_CALLS_BEGIN: &[&str] = &[
    "Builtins_Baseline",
    "Builtins_CEntry_",
    "Builtins_Call",
    "Builtins_Construct",
    "Builtins_Interpreter",
    "Builtins_JSBuiltinsConstructStub",
    "Builtins_JSConstructStub",
];

pub fn detect<S: Source + ?Sized>(
    executable: &ElfFile<'_, S>,
) -> Result<Option<DetectedInterpreter>, Unsupported> {
    let version = executable.symbols(VERSION);
    let [Some(major), Some(minor), Some(build)] =
        version.map(|symbol| executable.number(symbol?.address))
    else {
        return Ok(None);
    };
    let version = Version {
        major,
        minor,
        build,
    };
    let refuse = |why| Unsupported {
        runtime: Runtime::V8.title(),
        version: version.to_string(),
        why,
    };
    let [sizes] = executable.symbols([BYTECODE_SIZES]);
    let sizes = sizes.filter(|symbol| symbol.size <= BytecodeSizes::MAX_BYTES as u64);
    let sizes = sizes.and_then(|symbol| executable.loaded(symbol.address, symbol.size as usize));
    let sizes = sizes.and_then(BytecodeSizes::new);
    // A stripped file has the table without its name.
    let sizes = sizes
        .or_else(|| executable.search(".rodata", BytecodeSizes::MAX_BYTES, BytecodeSizes::find));
    let constants = executable.numbers(CONSTANTS);
    let heap = HeapLayout::new(version, &constants, sizes).map_err(refuse)?;
    let builtins = executable.functions_named(|name| name.starts_with(BUILTIN));
    let (loops, forwarders) = match builtins.first().zip(builtins.last()) {
        Some(((first, _), (last, _))) => {
            let forwarders = builtins.iter().filter(|(_, name)| carries_calls(name));
            let forwarders = forwarders.map(|(range, _)| range.clone());
            (first.start..last.end, forwarders.collect())
        }
        // The file is stripped, so the names of builtins are unknown.
        None => match executable.longest_gap(MIN_BUILTINS_BYTES) {
            Some(gap) => (gap.clone(), vec![gap]),
            None => return Err(refuse("its builtins were not found")),
        },
    };
    let Some(delta) = executable.code_delta(loops.start) else {
        return Err(refuse("its builtins are not in a loaded segment"));
    };
    let offsets =
        |range: Range<u64>| range.start.wrapping_sub(delta)..range.end.wrapping_sub(delta);
    Ok(Some(DetectedInterpreter {
        runtime: Runtime::V8,
        version: version.to_string(),
        loops: vec![offsets(loops)],
        forwarders: forwarders.into_iter().map(offsets).collect(),
        interpreter: Interpreter {
            runtime: runtime::V8,
            v8: heap.walk,
            ..Interpreter::default()
        },
        layout: RuntimeLayout::V8(Box::new(heap)),
    }))
}

/// The oldest and the newest supported version.
pub fn versions() -> Vec<String> {
    let versions = [OLDEST, NEWEST];
    versions
        .map(|it| format!("{}.{}", it.major, it.minor))
        .into()
}

/// The value that distinguishes the function at an address from earlier ones.
pub fn generation(
    layout: &HeapLayout,
    memory: &impl Memory,
    address: u64,
) -> Result<u32, FunctionError> {
    Function::generation(Heap { memory, layout }, address)
}

/// One example of each version whose layout does not depend on the file.
pub fn examples() -> Vec<DetectedInterpreter> {
    layout::examples()
        .into_iter()
        .map(|(version, heap)| DetectedInterpreter {
            runtime: Runtime::V8,
            version: version.to_string(),
            loops: Vec::new(),
            forwarders: Vec::new(),
            interpreter: Interpreter {
                runtime: runtime::V8,
                v8: heap.walk,
                ..Interpreter::default()
            },
            layout: RuntimeLayout::V8(Box::new(heap)),
        })
        .collect()
}

fn carries_calls(name: &str) -> bool {
    CARRIES_CALLS.iter().any(|end| name.ends_with(end))
        || CARRIES_CALLS_BEGIN
            .iter()
            .any(|begin| name.starts_with(begin))
}
