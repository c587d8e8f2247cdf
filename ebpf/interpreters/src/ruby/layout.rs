//! Where each version keeps what. A minor version keeps it for all of its releases.

use crate::version::Version;

/// Members of the objects that names are read from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SequenceLayout {
    /// Whether the first line is a number of Ruby rather than one of C.
    pub first_line_is_object: bool,
    /// Where the entries for lines are, and how many; the table of their positions is behind that.
    pub line_entries: u32,
    pub line_entry_bytes: u32,
    /// The sequence of the method that a block is in.
    pub local_sequence: u32,
    /// Whether a short string has its length among its flags.
    pub length_in_flags: bool,
    pub short_string: u32,
    pub classes: ClassLayout,
}

/// How classes have their names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClassLayout {
    /// Among the variables of the class.
    Variables,
    /// Members of the class.
    Members {
        path: u32,
        attached: u32,
        singleton: u64,
    },
    Unknown,
}

/// Flags that are free for the type of an object.
pub const USER_0: u64 = 1 << 12;
pub const USER_1: u64 = 1 << 13;

/// For names, and the size of a control frame.
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
        _ => return Err("this version of profcol knows 2.7 to 4.0"),
    };
    Ok((frame_bytes, layout))
}
