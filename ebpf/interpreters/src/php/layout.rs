//! Where each version keeps what. A minor version keeps it for all of its releases.

use crate::version::Version;

/// Members of an `zend_op_array`, beside those that all versions have at one place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FunctionLayout {
    pub file: u32,
    pub first_line: u32,
}

/// Where the state has the frame that runs, and what names need.
pub fn layouts(version: Version) -> Result<(u64, FunctionLayout), &'static str> {
    let (current, file) = match (version.major, version.minor) {
        (7, 4) => (488, 136),
        (8, 0 | 1 | 3) => (488, 144),
        (8, 2) => (488, 152),
        (8, 4) => (488, 168),
        (8, 5) => (512, 168),
        _ => return Err("this version of profcol knows 7.4 to 8.5"),
    };
    Ok((
        current,
        FunctionLayout {
            file,
            first_line: file + 8,
        },
    ))
}
