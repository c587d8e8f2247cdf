//! HotSpot, the JVM of OpenJDK: JDK 8 to 25.
//!
//! `libjvm.so` exports tables of its own types and members for tools. They are filled at load time,
//! so they must be read from each process ([`Layout::read`]): only the version is in the file. After startup the code cache of each
//! process is read ([`Layout::code_cache`]), and then functions have names ([`Code::read`]).

mod code;
mod code_cache;
mod file_image;
mod layout;
mod lines;
mod members;
mod method;
mod nmethod;
mod process;
mod scopes;
mod stubs;
mod tables;
mod unsigned5;

#[cfg(test)]
mod tests;

use profcol_ebpf_unwind::ElfCode;
use profcol_elf::{Machine, Source};

pub use self::code::Code;
pub use self::layout::{Layout, NEWEST, OLDEST, Version};
pub use self::process::{JavaFiles, JavaRuntime};
use crate::elf_file::ElfFile;
use crate::{Runtime, Unsupported};

/// A runtime in a file, and the location of its tables.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HotSpot {
    /// None if the file does not state it.
    pub version: Option<Version>,
    symbols: tables::Symbols,
    /// Offset in the file = address - this.
    code_delta: u64,
}

impl HotSpot {
    /// The runtime in a file, if it has one.
    pub fn detect(
        code: &ElfCode,
        source: &(impl Source + ?Sized),
    ) -> Result<Option<Self>, Unsupported> {
        let Some(executable) = ElfFile::read(code, source) else {
            return Ok(None);
        };
        let Some(symbols) = tables::Symbols::find(&executable) else {
            return Ok(None);
        };
        let refuse = |why| Unsupported {
            runtime: Runtime::Java.title(),
            version: Unsupported::UNKNOWN_VERSION.into(),
            why,
        };
        if executable.machine() == Machine::Aarch64 {
            return Err(refuse("it is not supported on aarch64 yet"));
        }
        let Some(code) = code.segments.first() else {
            return Err(refuse("it has no code in a loaded segment"));
        };
        Ok(Some(Self {
            version: layout::version_of_file(&symbols, &executable)?,
            symbols,
            code_delta: code.address.wrapping_sub(code.file_offset),
        }))
    }

    /// A runtime whose exports have these addresses, without a file: for tests and for fuzzing.
    pub fn with_exports(addresses: [u64; tables::EXPORTS]) -> Self {
        Self {
            version: None,
            symbols: tables::Symbols::at(addresses),
            code_delta: 0,
        }
    }

    /// The load bias, from a mapping of the file's code.
    pub fn bias(&self, mapping_start: u64, mapping_offset: u64) -> u64 {
        let address = mapping_offset.wrapping_add(self.code_delta);
        mapping_start.wrapping_sub(address)
    }
}

/// A frame of Java code, or of runtime code between.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JavaFrame {
    pub kind: FrameKind,
    /// As in source code: `java.util.HashMap.put`; for a stub, its name in the runtime.
    pub name: String,
    /// The name of the source file without its directory; empty if unknown.
    pub file: String,
    /// 0 if unknown.
    pub line: u32,
}

/// The method whose stub enters virtual threads.
const ENTER_SPECIAL: &str = "jdk.internal.vm.Continuation.enterSpecial";

impl JavaFrame {
    /// Whether it is the first frame of a virtual thread: if the walk continues, the next frames belong to the
    /// carrier thread.
    pub fn begins_virtual_thread(&self) -> bool {
        self.kind == FrameKind::Compiled && self.name == ENTER_SPECIAL
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FrameKind {
    Interpreted,
    Compiled,
    /// Inlined by the compiler into the next frame.
    Inlined,
    Stub,
}
