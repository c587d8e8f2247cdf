//! Where programs keep the contexts of their threads: goroutines with labels.

mod go;
#[cfg(test)]
mod tests;
mod tls;

use profcol_ebpf_common::context::ContextLayout;
use profcol_ebpf_unwind::ElfCode;
use profcol_elf::{Machine, Source};

use crate::Unsupported;
use crate::executable::Executable;

/// The contexts of a program's threads, if it may have any.
pub fn detect(
    code: &ElfCode,
    source: &(impl Source + ?Sized),
) -> Result<Option<ContextLayout>, Unsupported> {
    let is_program = code.interpreter || code.is_static();
    if code.machine != Machine::X86_64 || !is_program || !code.is_go() {
        return Ok(None);
    }
    let Some(executable) = Executable::read(code, source) else {
        return Ok(None);
    };
    let go = go::detect(&executable)?;
    Ok(go.map(|go| ContextLayout { go }))
}
