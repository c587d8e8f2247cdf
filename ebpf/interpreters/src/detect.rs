//! Finds the interpreter in a file.

use profcol_ebpf_unwind::ElfCode;
use profcol_elf::Source;

use crate::detected_interpreter::DetectedInterpreter;
use crate::elf_file::ElfFile;
use crate::error::Unsupported;
use crate::{luajit, perl, php, python, ruby, v8};

/// The interpreter in a file, if there is one.
pub fn detect(
    code: &ElfCode,
    source: &(impl Source + ?Sized),
) -> Result<Option<DetectedInterpreter>, Unsupported> {
    let Some(executable) = ElfFile::read(code, source) else {
        return Ok(None);
    };
    if let Some(detected) = python::detect(&executable)? {
        return Ok(Some(detected));
    }
    if let Some(detected) = v8::detect(&executable)? {
        return Ok(Some(detected));
    }
    if let Some(detected) = ruby::detect(&executable)? {
        return Ok(Some(detected));
    }
    if let Some(detected) = php::detect(&executable)? {
        return Ok(Some(detected));
    }
    if let Some(detected) = perl::detect(&executable)? {
        return Ok(Some(detected));
    }
    luajit::detect(&executable)
}

impl DetectedInterpreter {
    /// One example of each version whose layout does not depend on the file.
    pub fn examples() -> Vec<Self> {
        let mut examples = python::examples();
        examples.extend(v8::examples());
        examples.extend(ruby::examples());
        examples.extend(php::examples());
        examples.extend(perl::examples());
        examples.extend(luajit::examples());
        examples
    }
}
