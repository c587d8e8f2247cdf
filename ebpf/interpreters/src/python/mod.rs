//! CPython 3.8 to 3.14.
//!
//! Detection uses symbols that the runtime exports for C extensions, which `strip` keeps:
//! the loop `_PyEval_EvalFrameDefault`, the state `_PyRuntime` and, since 3.11, the version
//! `Py_Version`. Since 3.13 the state begins with a table of its own offsets.

mod code;
mod copies;
mod examples;
mod forwarders;
mod layout;
mod lines;
mod text;

#[cfg(test)]
mod tests;

use profcol_ebpf_common::interpreter::{Interpreter, runtime};
use profcol_elf::Source;

pub use self::code::Code;
pub use self::examples::{examples, versions};
pub use self::layout::CodeLayout;
use self::layout::Version;
use crate::detected_interpreter::{DetectedInterpreter, RuntimeLayout};
use crate::elf_file::ElfFile;
use crate::{Runtime, Unsupported, jumps};

const LOOP: &str = "_PyEval_EvalFrameDefault";
const STATE: &str = "_PyRuntime";
const VERSION: &str = "Py_Version";
/// The section of the state, which remains even without dynamic symbols.
const STATE_SECTION: &str = ".PyRuntime";

pub fn detect<S: Source + ?Sized>(
    executable: &ElfFile<'_, S>,
) -> Result<Option<DetectedInterpreter>, Unsupported> {
    let [entry, state, version] = executable.symbols([LOOP, STATE, VERSION]);
    let (Some(entry), Some(state)) = (entry, state) else {
        return Ok(None);
    };
    let offsets = executable.section(STATE_SECTION, layout::DEBUG_OFFSETS_BYTES);
    let offsets = offsets.filter(|(address, _)| *address == state.address);
    let version = version.and_then(|symbol| executable.loaded(symbol.address, 4));
    let version = version.and_then(|bytes| Some(u32::from_le_bytes(*bytes.first_chunk()?)));
    let Some(version) = version
        .map(Version::from_hex)
        .or_else(|| old_version(executable))
    else {
        return Err(unsupported(
            Unsupported::UNKNOWN_VERSION,
            "the version is not in the file",
        ));
    };
    let refuse = |why| unsupported(&version.to_string(), why);
    let offsets = offsets.as_ref().map(|(_, bytes)| &**bytes);
    let (layout, code) = layout::layouts(version, offsets).map_err(refuse)?;
    let Some(delta) = executable.code_delta(entry.address) else {
        return Err(refuse("its loop is not in a loaded segment"));
    };
    let size = entry.size.min(jumps::MAX_FUNCTION_BYTES);
    let entry = entry.address..entry.address.saturating_add(size);
    let loops = jumps::parts(executable, entry, delta);
    let forwarders = executable.functions_named(forwarders::is_one).into_iter();
    let forwarders =
        forwarders.map(|(range, _)| range.start.wrapping_sub(delta)..range.end.wrapping_sub(delta));
    Ok(Some(DetectedInterpreter {
        runtime: Runtime::Python,
        version: version.to_string(),
        loops,
        forwarders: forwarders.collect(),
        interpreter: Interpreter {
            state: state.address.wrapping_sub(delta),
            runtime: runtime::PYTHON,
            python: layout,
            ..Interpreter::default()
        },
        layout: RuntimeLayout::Python(code),
    }))
}

fn unsupported(version: &str, why: &'static str) -> Unsupported {
    Unsupported {
        runtime: Runtime::Python.title(),
        version: version.into(),
        why,
    }
}

/// The version of 3.8 to 3.10, from the name of the library directory.
fn old_version<S: Source + ?Sized>(executable: &ElfFile<'_, S>) -> Option<Version> {
    let mut names = ["/python3.", "\0python3."].into_iter();
    let digits = names.find_map(|name| executable.text_behind(".rodata", name, 2))?;
    let digits = digits.split(|byte| !byte.is_ascii_digit()).next()?;
    let minor = str::from_utf8(digits).ok()?.parse().ok()?;
    (8..=10)
        .contains(&minor)
        .then_some(Version { minor, micro: None })
}
