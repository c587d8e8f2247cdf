//! Functions with unwind information, in images compiled ahead of time.

use profcol_elf::Source;

use crate::DotNetError;
use crate::assembly::Assembly;
use crate::bytes::Bytes;
use crate::error::damaged;
use crate::image::Machine;

const FUNCTION_BYTES: u64 = 12;
/// Maximum size of unwind data; the largest framework assembly has half a megabyte.
const MAX_BYTES: u64 = 16 << 20;

/// Native code with one prologue: a method, a part of it, or one of its exception handlers. Addresses are relative to the image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnwindFunction {
    pub start: u32,
    pub end: u32,
    /// Address of its unwind information.
    pub info: u32,
}

impl Assembly {
    /// In the order of the image. Empty without native code of x86-64: that of others is encoded differently.
    pub fn unwind_functions(
        &self,
        source: &(impl Source + ?Sized),
    ) -> Result<Vec<UnwindFunction>, DotNetError> {
        let what = "the table of functions";
        let directory = self.image.exceptions;
        if self.image.machine != Machine::X86_64 || directory.size == 0 {
            return Ok(Vec::new());
        }
        let bytes = self
            .image
            .extent(what, directory)?
            .read(source, MAX_BYTES)?;
        let functions = bytes.as_chunks::<{ FUNCTION_BYTES as usize }>().0.iter();
        functions
            .map(|function| {
                let mut bytes = Bytes(function);
                let mut word = || bytes.u32().ok_or_else(|| damaged(what));
                Ok(UnwindFunction {
                    start: word()?,
                    end: word()?,
                    info: word()?,
                })
            })
            .collect()
    }
}
