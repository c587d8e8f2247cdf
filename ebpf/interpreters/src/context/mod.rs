//! Where programs keep the contexts of their threads: goroutines with labels, OpenTelemetry's thread context, custom
//! labels.
//!
//! * [`detect`] finds those of an executable, which are the same in all of its processes.
//! * [`LibraryContexts`] finds those of libraries, process by process.

mod go;
mod library;
mod processes;
mod tls;

#[cfg(test)]
mod library_tests;
#[cfg(test)]
mod tests;

use profcol_ebpf_common::context::{ContextLayout, Variable, custom_labels, otel};
use profcol_ebpf_unwind::ElfCode;
use profcol_elf::{Machine, Source};

pub use self::library::{CLibrary, ContextFile, Library};
pub use self::processes::LibraryContexts;
use crate::Unsupported;
use crate::elf_file::{ElfFile, FoundSymbol};

/// The contexts of a program's threads, if it may have any.
pub fn detect(
    code: &ElfCode,
    source: &(impl Source + ?Sized),
) -> Result<Option<ContextLayout>, Unsupported> {
    let is_program = code.interpreter || code.is_static();
    if !is_program {
        return Ok(None);
    }
    let Some(executable) = ElfFile::read(code, source) else {
        return Ok(None);
    };
    let mut layout = ContextLayout::default();
    if let Some(start) = tls::start(&executable) {
        let names = [
            otel::SYMBOL,
            custom_labels::SYMBOL,
            custom_labels::VERSION_SYMBOL,
        ];
        // A static program exports nothing.
        let [otel, labels, version] = match code.is_static() {
            true => executable.symbols(names),
            false => executable.exported(names),
        };
        // The address of a thread-local symbol is its offset.
        let variable = |symbol: FoundSymbol| Variable {
            offset: start.wrapping_add(symbol.address),
        };
        let version = version.and_then(|symbol| executable.number(symbol.address));
        let labels = labels.filter(|_| version == Some(custom_labels::VERSION));
        layout.otel = otel.map_or_else(Variable::default, variable);
        layout.custom_labels = labels.map_or_else(Variable::default, variable);
    }
    if code.machine == Machine::X86_64
        && code.is_go()
        && let Some(go) = go::detect(&executable)?
    {
        layout.go = go;
    }
    Ok((layout != ContextLayout::default()).then_some(layout))
}
