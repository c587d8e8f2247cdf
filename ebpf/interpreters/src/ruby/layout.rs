//! The memory layout of each version. It is fixed for all releases of a minor version.

use crate::version::Version;
use serde::{Deserialize, Serialize};

/// Members of the objects that hold names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SequenceLayout {
    /// Whether the first line is a Ruby number rather than a C one.
    pub first_line_is_object: bool,
    /// The offset of the line entries, followed by their number and the table of their positions.
    pub line_entries: u32,
    pub line_entry_bytes: u32,
    /// The sequence of the method that contains a block.
    pub local_sequence: u32,
    /// Whether a short string stores its length in the flags.
    pub length_in_flags: bool,
    pub short_string: u32,
    pub classes: ClassLayout,
}

/// How classes store their names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ClassLayout {
    /// As a variable of the class.
    Variables,
    /// As members of the class.
    Members {
        path: u32,
        attached: u32,
        singleton: u64,
    },
    Unknown,
}

/// The first flag whose meaning depends on the type of an object.
pub const USER_0: u64 = 1 << 12;
pub const USER_1: u64 = 1 << 13;

/// The size of a control frame, and the layout for names.
pub fn layouts(version: Version) -> Result<(u32, SequenceLayout), &'static str> {
    let frame_bytes = match (version.major, version.minor) {
        (3, 1 | 2) => 64,
        _ => 56,
    };
    let old = SequenceLayout {
        first_line_is_object: true,
        line_entries: 120,
        line_entry_bytes: 8,
        local_sequence: 176,
        length_in_flags: true,
        short_string: 16,
        classes: ClassLayout::Variables,
    };
    let new = SequenceLayout {
        first_line_is_object: false,
        line_entries: 112,
        line_entry_bytes: 12,
        local_sequence: 168,
        length_in_flags: false,
        short_string: 24,
        classes: ClassLayout::Unknown,
    };
    let layout = match (version.major, version.minor) {
        (2, 7) | (3, 0) => old,
        (3, 1) => SequenceLayout {
            line_entry_bytes: 12,
            ..old
        },
        (3, 2) => new,
        (3, 3) => SequenceLayout {
            classes: ClassLayout::Members {
                path: 152,
                attached: 128,
                singleton: USER_0,
            },
            ..new
        },
        (3, 4) => SequenceLayout {
            classes: ClassLayout::Members {
                path: 152,
                attached: 128,
                singleton: USER_1,
            },
            ..new
        },
        (4, 0) => SequenceLayout {
            local_sequence: 176,
            classes: ClassLayout::Members {
                path: 152,
                attached: 136,
                singleton: USER_1,
            },
            ..new
        },
        _ => return Err("this version of profcol supports 2.7 to 4.0"),
    };
    Ok((frame_bytes, layout))
}
