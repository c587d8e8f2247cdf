//! The memory layout of each version. It is fixed for all releases of a minor version.

use crate::version::Version;
use serde::{Deserialize, Serialize};

/// Members of a `zend_op_array` whose offset depends on the version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FunctionLayout {
    pub file: u32,
    pub first_line: u32,
}

/// The offset of the current frame in the state, and the layout for names.
pub fn layouts(version: Version) -> Result<(u64, FunctionLayout), &'static str> {
    let (current, file) = match (version.major, version.minor) {
        (7, 4) => (488, 136),
        (8, 0 | 1 | 3) => (488, 144),
        (8, 2) => (488, 152),
        (8, 4) => (488, 168),
        (8, 5) => (512, 168),
        _ => return Err("this version of profcol supports 7.4 to 8.5"),
    };
    Ok((
        current,
        FunctionLayout {
            file,
            first_line: file + 8,
        },
    ))
}
