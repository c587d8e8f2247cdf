//! .NET's CoreCLR, in files and processes.
//!
//! The programs walk code that the JIT compiler wrote by the runtime's unwind codes, for which they need the [address of its code
//! ranges](DotNetRuntime::process). Names of that code come from the tables of the running process, those of code compiled ahead of time from
//! the assembly's file.

mod code;
mod file;
mod layout;
mod limits;
mod lines;
mod process;

#[cfg(test)]
mod tests;

use profcol_ebpf_unwind::ElfCode;
use profcol_elf::{Machine, Source};

use crate::elf_file::ElfFile;
use crate::{Runtime, SourceFrame, Unsupported};

pub use self::code::{CodeAt, CodeReader, CompiledMethod, Described, ImageAt};
pub use self::file::DotNetFile;
pub use self::layout::Layout;
pub use self::lines::ProgramDirectory;
pub use self::process::{DotNetFiles, DotNetRuntime};

const SYMBOLS: [&str; 1] = ["g_dacTable"];
/// Before the version, in text that identifies the file.
const VERSION_SECTION: &str = ".data";
const VERSION: &str = "@(#)Version ";
const VERSION_BYTES: usize = 24;

/// The runtime in a file: a shared library, or a part of a single-file program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CoreClr {
    pub version: String,
    pub layout: Layout,
    /// Address of the table for debuggers. Its first entry has the address of the map of code ranges.
    pub debugger_table: u64,
}

/// A method with native code.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DotNetFunction {
    pub name: String,
    /// Empty if unknown.
    pub file: String,
    /// 0 if unknown, as for `line`.
    pub first_line: u32,
    pub line: u32,
    /// Code of the runtime between methods.
    pub is_stub: bool,
    /// It was made at run time, and may be collected.
    pub is_dynamic: bool,
    /// It was compiled ahead of time.
    pub is_precompiled: bool,
}

impl CoreClr {
    pub fn detect(
        code: &ElfCode,
        source: &(impl Source + ?Sized),
    ) -> Result<Option<Self>, Unsupported> {
        let Some(executable) = ElfFile::read(code, source) else {
            return Ok(None);
        };
        let [Some(table)] = executable.exported(SYMBOLS) else {
            return Ok(None);
        };
        let Some(version) = version(&executable) else {
            return Ok(None);
        };
        let refuse = |why| Unsupported {
            runtime: Runtime::DotNet.title(),
            version: version.clone(),
            why,
        };
        if executable.machine() == Machine::Aarch64 {
            return Err(refuse("it is not supported on aarch64 yet"));
        }
        Ok(Some(Self {
            layout: Layout::of_version(&version).map_err(refuse)?,
            debugger_table: table.address,
            version,
        }))
    }
}

/// The supported versions.
pub fn versions() -> Vec<String> {
    let layouts = Layout::all().iter();
    layouts.map(|layout| layout.major.to_string()).collect()
}

/// As users know it: `8.0.30`, where the file says `8.0.3026.36720`.
fn version<S: Source + ?Sized>(executable: &ElfFile<'_, S>) -> Option<String> {
    let text = executable.text_behind(VERSION_SECTION, VERSION, VERSION_BYTES)?;
    let digits = text
        .iter()
        .take_while(|byte| matches!(byte, b'0'..=b'9' | b'.'));
    let version = String::from_utf8(digits.copied().collect()).ok()?;
    (!version.is_empty()).then(|| release(&version))
}

/// The third number of a file's version consists of the release and two digits of the year, the fourth is the build.
fn release(version: &str) -> String {
    let numbers: Vec<&str> = version.split('.').collect();
    match *numbers {
        [major, minor, patch, _] => match patch.parse::<u32>() {
            Ok(patch) => format!("{major}.{minor}.{}", patch / 100),
            Err(_) => version.to_owned(),
        },
        _ => version.to_owned(),
    }
}

impl DotNetFunction {
    pub fn stub() -> Self {
        Self {
            name: "[dotnet: stub]".into(),
            is_stub: true,
            ..Self::default()
        }
    }

    pub fn frame(&self) -> SourceFrame<'_> {
        SourceFrame {
            name: (&*self.name).into(),
            file: (&*self.file).into(),
            first_line: self.first_line,
            line: self.line,
        }
    }

    pub fn bytes(&self) -> usize {
        size_of::<Self>() + self.name.len() + self.file.len()
    }
}
