//! The memory layout of each version. It is fixed for all releases of a minor version.

use profcol_ebpf_common::interpreter::perl::Layout;
use serde::{Deserialize, Serialize};

use crate::version::Version;

/// Members of the objects that hold names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NameLayout {
    /// Whether a statement has the glob of its file, or the file's name.
    pub file_is_glob: bool,
    /// Whether the name of a package is in the body of its hash, or after the hash's entries.
    pub package_in_body: bool,
}

/// Members of a threaded build's interpreter.
const OPERATION: u32 = 0x8;
const STACK_INFO_AFTER_STATEMENT: u32 = 0x10;

/// The layouts of a threaded build.
pub fn layouts(version: Version) -> Result<(Layout, NameLayout), &'static str> {
    let (statement, context_bytes, context_function) = match (version.major, version.minor) {
        (5, 28 | 30) => (0xe0, 0x60, 8),
        (5, 32) => (0xe0, 0x68, 9),
        (5, 34 | 36 | 38 | 40 | 42) => (0xd0, 0x68, 9),
        _ => return Err("this version of profcol supports 5.28 to 5.42"),
    };
    let layout = Layout {
        operation: OPERATION,
        statement,
        stack_info: statement + STACK_INFO_AFTER_STATEMENT,
        context_bytes,
        context_function,
        ..Layout::default()
    };
    let names = NameLayout {
        file_is_glob: false,
        package_in_body: version.minor >= 36,
    };
    Ok((layout, names))
}
