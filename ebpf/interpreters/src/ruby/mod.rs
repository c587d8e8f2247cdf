//! Ruby (MRI) 2.7 to 4.0.
//!
//! Detection uses symbols that the runtime exports for C extensions, which `strip` keeps: the version
//! `ruby_version`, and `rb_errinfo`, whose code shows how to find a thread's execution context. The loop has no
//! symbol; it is the function with by far the most indirect jumps, and `rb_vm_exec` is the one that calls it.

mod class;
mod context;
mod layout;
mod lines;
mod object;
mod sequence;
mod vm;

use profcol_ebpf_common::interpreter::thread_variable::ThreadVariable;
use profcol_ebpf_common::interpreter::{Interpreter, ruby, runtime};
use profcol_elf::{Machine, Source};

pub use self::layout::SequenceLayout;
pub use self::sequence::{Sequence, generation};
use crate::detected_interpreter::{DetectedInterpreter, RuntimeLayout};
use crate::elf_file::ElfFile;
use crate::jumps::parts;
use crate::version::Version;
use crate::{Runtime, Unsupported};

const VERSION: &str = "ruby_version";
const VERSION_BYTES: usize = 8;
/// Exported functions that load the context first, which `strip` keeps.
const CONTEXT: &str = "rb_errinfo";
const KEY: &str = "ruby_native_thread_p";

pub fn detect<S: Source + ?Sized>(
    executable: &ElfFile<'_, S>,
) -> Result<Option<DetectedInterpreter>, Unsupported> {
    let [version, error_info, key] = executable.symbols([VERSION, CONTEXT, KEY]);
    let (Some(version), Some(error_info)) = (version, error_info) else {
        return Ok(None);
    };
    let version = executable.loaded(version.address, VERSION_BYTES);
    let Some(version) =
        version.and_then(|text| Version::parse(text.split(|&byte| byte == 0).next()?))
    else {
        return Err(unsupported(
            Unsupported::UNKNOWN_VERSION,
            "the version is not in the file",
        ));
    };
    let refuse = |why| unsupported(&version.to_string(), why);
    let (frame_bytes, sequence) = layout::layouts(version).map_err(refuse)?;
    if executable.machine() == Machine::Aarch64 {
        return Err(refuse("it is not supported on aarch64 yet"));
    }
    let code = |at: u64| {
        executable
            .loaded(at, context::CODE_BYTES)
            .unwrap_or_default()
    };
    let found = match key.filter(|_| version.major < 3) {
        Some(key) => context::by_key(&code(key.address), key.address),
        None => context::by_variable(&code(error_info.address), error_info.address),
    };
    let Some(context) = found else {
        return Err(refuse("the execution context of threads was not found"));
    };
    let Some(vm) = vm::find(executable) else {
        return Err(refuse("its loop was not found"));
    };
    let Some(delta) = executable.code_delta(vm.entry.start) else {
        return Err(refuse("its loop is not in a loaded segment"));
    };
    let offset = |at: u64| at.wrapping_sub(delta);
    let (Ok(loop_start), Ok(loop_end)) = (
        u32::try_from(offset(vm.body.start)),
        u32::try_from(offset(vm.body.end)),
    ) else {
        return Err(refuse("the file offset of its loop is too large"));
    };
    let mut loops = parts(executable, vm.entry, delta);
    let mut forwarders = parts(executable, vm.body, delta);
    loops.extend(forwarders.first().cloned());
    forwarders.sort_unstable_by_key(|range| range.start);
    Ok(Some(DetectedInterpreter {
        runtime: Runtime::Ruby,
        version: version.to_string(),
        loops,
        forwarders,
        interpreter: Interpreter {
            state: context.state.wrapping_sub(delta),
            runtime: runtime::RUBY,
            ruby: ruby::Layout {
                context: ThreadVariable {
                    table_shift: executable.thread_table_shift(),
                    ..context.variable
                },
                frame_bytes,
                loop_start,
                loop_end,
            },
            ..Interpreter::default()
        },
        layout: RuntimeLayout::Ruby(sequence),
    }))
}

/// The supported versions.
pub fn versions() -> Vec<String> {
    let supported = Version::first_releases().filter(|it| layout::layouts(*it).is_ok());
    supported.map(Version::minor_version).collect()
}

/// One example of each version.
pub fn examples() -> Vec<DetectedInterpreter> {
    let example = |version: Version| {
        let (frame_bytes, sequence) = layout::layouts(version).ok()?;
        Some(DetectedInterpreter {
            runtime: Runtime::Ruby,
            version: version.to_string(),
            loops: Vec::new(),
            forwarders: Vec::new(),
            interpreter: Interpreter {
                runtime: runtime::RUBY,
                ruby: ruby::Layout {
                    frame_bytes,
                    ..ruby::Layout::default()
                },
                ..Interpreter::default()
            },
            layout: RuntimeLayout::Ruby(sequence),
        })
    };
    Version::first_releases().filter_map(example).collect()
}

fn unsupported(version: &str, why: &'static str) -> Unsupported {
    Unsupported {
        runtime: Runtime::Ruby.title(),
        version: version.into(),
        why,
    }
}
