//! PHP 7.4 to 8.5, without its own threads.
//!
//! What a file has is told by what its runtime exports for extensions, which no `strip` takes away: the
//! loop `execute_ex` and the state `executor_globals`, and by the version that it tells browsers.

mod function;
mod layout;

use iced_x86::{Decoder, DecoderOptions, FlowControl};
use profcol_ebpf_common::interpreter::{Interpreter, php, runtime};
use profcol_ebpf_common::rule::{Cfa, Rule};
use profcol_ebpf_common::table::PAGE_SHIFT;
use profcol_ebpf_unwind::Index;
use profcol_elf::{Machine, Source};

pub use self::function::{PhpFunction, generation};
pub use self::layout::FunctionLayout;
use crate::executable::Executable;
use crate::version::Version;
use crate::{DetectedInterpreter, Runtime, RuntimeLayout, Unsupported, jumps};

const LOOP: &str = "execute_ex";
const STATE: &str = "executor_globals";
/// Where each thread has a state of its own.
const STATE_OF_THREADS: &str = "executor_globals_offset";
const VERSION: &str = "X-Powered-By: PHP/";
const VERSION_BYTES: usize = 16;
/// Of the loop, before it runs the first instruction.
const ENTRY_BYTES: usize = 256;

pub fn detect<S: Source + ?Sized>(
    executable: &Executable<'_, S>,
) -> Result<Option<DetectedInterpreter>, Unsupported> {
    let [entry, state, of_threads] = executable.symbols([LOOP, STATE, STATE_OF_THREADS]);
    let Some(entry) = entry.filter(|_| state.is_some() || of_threads.is_some()) else {
        return Ok(None);
    };
    let version = executable.text_behind(".rodata", VERSION, VERSION_BYTES);
    let Some(version) = version.and_then(|text| version_of(&text)) else {
        return Err(unsupported(
            "of an unknown version",
            "the version is not in the file",
        ));
    };
    let refuse = |why| unsupported(&version.to_string(), why);
    let Some(state) = state else {
        return Err(refuse("builds with threads are not supported yet"));
    };
    let (current, function) = layout::layouts(version).map_err(refuse)?;
    if executable.machine() == Machine::Aarch64 {
        return Err(refuse("it is not supported on aarch64 yet"));
    }
    let Some(delta) = executable.code_delta(entry.address) else {
        return Err(refuse("its loop is not in a loaded segment"));
    };
    let size = entry.size.min(jumps::MAX_FUNCTION_BYTES);
    let range = entry.address..entry.address.saturating_add(size);
    Ok(Some(DetectedInterpreter {
        runtime: Runtime::Php,
        version: version.to_string(),
        loops: jumps::parts(executable, range, delta),
        calls: Vec::new(),
        interpreter: Interpreter {
            state: state.address.wrapping_add(current).wrapping_sub(delta),
            runtime: runtime::PHP,
            php: generated_code(executable, entry.address, delta).unwrap_or_default(),
            ..Interpreter::default()
        },
        layout: RuntimeLayout::Php(function),
    }))
}

/// `8.2.36`, and whatever follows it.
fn version_of(text: &[u8]) -> Option<Version> {
    let is_of_version = |byte: &u8| byte.is_ascii_digit() || *byte == b'.';
    let length = text.iter().take_while(|&byte| is_of_version(byte)).count();
    Version::parse(text.get(..length)?)
}

/// How code that opcache generated is left: it is jumped to from `execute_ex`, whose frame is whole where it
/// runs the first instruction.
fn generated_code<S: Source + ?Sized>(
    executable: &Executable<'_, S>,
    entry: u64,
    delta: u64,
) -> Option<php::Layout> {
    let code = executable.loaded(entry, ENTRY_BYTES)?;
    let decoder = Decoder::with_ip(64, &code, entry, DecoderOptions::NONE);
    let mut jumps = decoder
        .into_iter()
        .filter(|instruction| instruction.flow_control() == FlowControl::IndirectBranch);
    let body = jumps.next()?.ip().wrapping_sub(delta);
    let index = Index::open(executable.code, executable.source).ok()?;
    let table = index.pages(executable.source, body >> PAGE_SHIFT, 1).ok()?;
    let Rule::Frame {
        cfa: Cfa::Sp(frame_bytes),
        ..
    } = table.lookup(body)
    else {
        return None;
    };
    let mut segments = executable.code.segments.iter();
    let text = segments.find(|segment| segment.holds(entry))?;
    Some(php::Layout {
        body: u32::try_from(body).ok()?,
        frame_bytes: u32::try_from(frame_bytes).ok()?,
        text_start: u32::try_from(text.file_offset).ok()?,
        text_end: u32::try_from(text.file_end()).ok()?,
    })
}

/// One of each version.
pub fn examples() -> Vec<DetectedInterpreter> {
    let versions = [(7, 4), (8, 0), (8, 1), (8, 2), (8, 3), (8, 4), (8, 5)];
    let example = |(major, minor)| {
        let version = Version {
            major,
            minor,
            patch: 0,
        };
        let (_, function) = layout::layouts(version).ok()?;
        Some(DetectedInterpreter {
            runtime: Runtime::Php,
            version: version.to_string(),
            loops: Vec::new(),
            calls: Vec::new(),
            interpreter: Interpreter {
                runtime: runtime::PHP,
                ..Interpreter::default()
            },
            layout: RuntimeLayout::Php(function),
        })
    };
    versions.into_iter().filter_map(example).collect()
}

fn unsupported(version: &str, why: &'static str) -> Unsupported {
    Unsupported {
        runtime: "PHP",
        version: version.into(),
        why,
    }
}
