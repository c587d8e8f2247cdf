//! The memory layout of each version.
//!
//! Up to 3.12 it is fixed for a minor version. Since 3.13 the file has a table of offsets,
//! `_Py_DebugOffsets`, whose own layout is fixed for a minor version.

use serde::{Deserialize, Serialize};
use std::fmt;

use profcol_ebpf_common::interpreter::BLOCK_BYTES;
use profcol_ebpf_common::interpreter::python::{IDENTITY_BYTES, Layout, NO_CFRAME, boundary};

/// Bytes to read of the table.
pub const DEBUG_OFFSETS_BYTES: usize = 768;
pub const COOKIE: &[u8] = b"xdebugpy";

/// Larger than all structures of the interpreter.
const MAX_OFFSET: u64 = 1 << 20;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Version {
    pub minor: u8,
    pub micro: Option<u8>,
}

impl Version {
    /// `PY_VERSION_HEX`.
    pub fn from_hex(hex: u32) -> Self {
        let [_, micro, minor, major] = hex.to_le_bytes();
        Self {
            // Other major versions do not have these symbols.
            minor: if major == 3 { minor } else { 0 },
            micro: Some(micro),
        }
    }
}

impl fmt::Display for Version {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.micro {
            Some(micro) => write!(formatter, "3.{}.{micro}", self.minor),
            None => write!(formatter, "3.{}", self.minor),
        }
    }
}

/// Members of the objects that hold names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CodeLayout {
    pub lines: LineTable,
    pub code: CodeMembers,
    pub references: References,
    /// The part that the BPF programs read, see [`Layout`].
    pub identity: IdentityMembers,
    pub bytes_size: u32,
    pub bytes_data: u32,
    pub text: TextLayout,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CodeMembers {
    /// Bytes that include all these members.
    pub size: u32,
    pub filename: u32,
    pub name: u32,
    pub qualified_name: Option<u32>,
    pub line_table: u32,
    pub first_line: u32,
    pub copies: Option<CopyMembers>,
}

/// The instructions of versions in which each thread may have a copy of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CopyMembers {
    /// The pointer to the array of copies.
    pub array: u32,
    /// The first copy.
    pub instructions: u32,
}

/// How objects count their references.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum References {
    /// In the first member.
    One,
    /// Free-threaded: those of the thread that made the object, and those of others.
    Two,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct IdentityMembers {
    pub first: u32,
    pub second: u32,
    /// Whether these do not suffice.
    pub has_texts: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TextLayout {
    pub length: u32,
    pub state: u32,
    pub ascii_data: u32,
    pub other_data: u32,
    pub flags: TextFlags,
}

/// Where the state of a string has its flags.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum TextFlags {
    /// Behind two bits on interning.
    AfterBits,
    /// Behind a byte on interning, which several threads may write.
    AfterByte,
}

/// The format of the line table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum LineTable {
    /// 3.8 and 3.9: `co_lnotab`.
    Lnotab,
    /// 3.10: byte ranges.
    Ranges,
    /// Since 3.11: locations of code units.
    Locations,
}

/// The layouts for the BPF programs and for names.
pub fn layouts(
    version: Version,
    offsets: Option<&[u8]>,
) -> Result<(Layout, CodeLayout), &'static str> {
    let (layout, code) = match version.minor {
        8 => (before_3_11(104, 1), code_before_3_11(LineTable::Lnotab)),
        9 => (before_3_11(104, 1), code_before_3_11(LineTable::Lnotab)),
        10 => (before_3_11(96, 0), code_before_3_11(LineTable::Ranges)),
        11 => (python_3_11(), code_3_11()),
        12 => (python_3_12(), code_3_12()),
        13 => by_offsets(&OFFSETS_3_13, offsets)?,
        14 => by_offsets(&OFFSETS_3_14, offsets)?,
        _ => return Err("this version of profcol supports 3.8 to 3.14"),
    };
    Ok((layout, code))
}

fn before_3_11(last_instruction: u32, position_shift: u32) -> Layout {
    Layout {
        boundary: boundary::SINGLE,
        runtime_interpreters: 32,
        interpreter_next: 0,
        interpreter_threads: 8,
        thread_next: 8,
        thread_interpreter: 16,
        thread_id: 176,
        thread_frame: 24,
        cframe_frame: NO_CFRAME,
        cframe_previous: 0,
        frame_bytes: 112,
        frame_previous: 24,
        frame_code: 32,
        frame_instruction: last_instruction,
        frame_owner: 0,
        shim_owner: 0,
        code_identity: 40,
        // `co_firstlineno`, and the address of `co_code`.
        identity_first: 0,
        identity_second: 8,
        identity_name: 72,
        identity_file: 64,
        text_data: 48,
        code_instructions: 0,
        position_shift,
    }
}

fn code_before_3_11(lines: LineTable) -> CodeLayout {
    CodeLayout {
        lines,
        code: CodeMembers {
            size: 136,
            filename: 104,
            name: 112,
            qualified_name: None,
            line_table: 120,
            first_line: 40,
            copies: None,
        },
        references: References::One,
        identity: IdentityMembers {
            first: 40,
            second: 48,
            has_texts: true,
        },
        bytes_size: 16,
        bytes_data: 32,
        text: TextLayout {
            length: 16,
            state: 32,
            ascii_data: 48,
            other_data: 72,
            flags: TextFlags::AfterBits,
        },
    }
}

fn python_3_11() -> Layout {
    Layout {
        boundary: boundary::CFRAME,
        runtime_interpreters: 40,
        interpreter_next: 0,
        interpreter_threads: 16,
        thread_next: 8,
        thread_interpreter: 16,
        thread_id: 152,
        thread_frame: 56,
        cframe_frame: 8,
        cframe_previous: 16,
        frame_bytes: 80,
        frame_previous: 48,
        frame_code: 32,
        frame_instruction: 56,
        frame_owner: 68,
        shim_owner: 0,
        code_identity: 64,
        // `co_firstlineno`, and the address of `co_name`.
        identity_first: 8,
        identity_second: 56,
        identity_name: 56,
        identity_file: 48,
        text_data: 48,
        code_instructions: 184,
        position_shift: 1,
    }
}

fn code_3_11() -> CodeLayout {
    CodeLayout {
        lines: LineTable::Locations,
        code: CodeMembers {
            size: 144,
            filename: 112,
            name: 120,
            qualified_name: Some(128),
            line_table: 136,
            first_line: 72,
            copies: None,
        },
        identity: IdentityMembers {
            first: 72,
            second: 120,
            has_texts: true,
        },
        ..code_before_3_11(LineTable::Locations)
    }
}

fn python_3_12() -> Layout {
    Layout {
        boundary: boundary::SHIM,
        interpreter_threads: 72,
        thread_id: 136,
        cframe_frame: 0,
        frame_previous: 8,
        frame_code: 0,
        frame_owner: 70,
        shim_owner: 3,
        code_identity: 48,
        // `co_firstlineno` and `co_version`, which no other code gets.
        identity_first: 20,
        identity_second: 44,
        identity_name: 0,
        identity_file: 0,
        text_data: 0,
        code_instructions: 192,
        ..python_3_11()
    }
}

fn code_3_12() -> CodeLayout {
    CodeLayout {
        code: CodeMembers {
            first_line: 68,
            ..code_3_11().code
        },
        identity: IdentityMembers {
            first: 68,
            second: 92,
            has_texts: false,
        },
        text: TextLayout {
            ascii_data: 40,
            other_data: 56,
            ..code_3_11().text
        },
        ..code_3_11()
    }
}

/// The positions of offsets in the table.
pub struct DebugOffsets {
    pub minor: u64,
    pub interpreters_head: usize,
    pub interpreter_next: usize,
    pub threads_head: usize,
    pub thread_next: usize,
    pub thread_interpreter: usize,
    pub current_frame: usize,
    pub thread_id: usize,
    pub frame_size: usize,
    pub frame_previous: usize,
    pub frame_executable: usize,
    pub frame_instruction: usize,
    pub frame_owner: usize,
    pub code_filename: usize,
    pub code_name: usize,
    pub code_qualified_name: usize,
    pub code_line_table: usize,
    pub code_first_line: usize,
    pub code_adaptive: usize,
    /// Since 3.14.
    pub code_copies: Option<usize>,
    pub bytes_size: usize,
    pub bytes_data: usize,
    pub text_state: usize,
    pub text_length: usize,
    pub text_ascii_size: usize,
}

/// Where the table says whether the build is free-threaded.
pub const FREE_THREADED: usize = 16;

pub const OFFSETS_3_13: DebugOffsets = DebugOffsets {
    minor: 13,
    interpreters_head: 40,
    interpreter_next: 64,
    threads_head: 72,
    thread_next: 168,
    thread_interpreter: 176,
    current_frame: 184,
    thread_id: 192,
    frame_size: 224,
    frame_previous: 232,
    frame_executable: 240,
    frame_instruction: 248,
    frame_owner: 264,
    code_filename: 280,
    code_name: 288,
    code_qualified_name: 296,
    code_line_table: 304,
    code_first_line: 312,
    code_adaptive: 344,
    code_copies: None,
    bytes_size: 520,
    bytes_data: 528,
    text_state: 544,
    text_length: 552,
    text_ascii_size: 560,
};

pub const OFFSETS_3_14: DebugOffsets = DebugOffsets {
    minor: 14,
    interpreters_head: 40,
    interpreter_next: 64,
    threads_head: 72,
    thread_next: 192,
    thread_interpreter: 200,
    current_frame: 208,
    thread_id: 216,
    frame_size: 248,
    frame_previous: 256,
    frame_executable: 264,
    frame_instruction: 272,
    frame_owner: 288,
    code_filename: 320,
    code_name: 328,
    code_qualified_name: 336,
    code_line_table: 344,
    code_first_line: 352,
    code_adaptive: 384,
    code_copies: Some(392),
    bytes_size: 600,
    bytes_data: 608,
    text_state: 624,
    text_length: 632,
    text_ascii_size: 640,
};

/// `co_version` is not in the table; it is this many bytes after `co_firstlineno`.
const VERSION_BEHIND_FIRST_LINE: u32 = 24;
/// Bytes of the additional members before the data of a non-ASCII string.
const UTF8_MEMBERS: u32 = 16;
/// `FRAME_OWNED_BY_CSTACK` in 3.13, `FRAME_OWNED_BY_INTERPRETER` in 3.14.
const SHIM_OWNER: u32 = 3;

fn by_offsets(
    at: &DebugOffsets,
    table: Option<&[u8]>,
) -> Result<(Layout, CodeLayout), &'static str> {
    let Some(table) = table.filter(|table| table.starts_with(COOKIE)) else {
        return Err("its `_PyRuntime` does not begin with a table of offsets");
    };
    let word = |at: usize| {
        let bytes = table.get(at..).and_then(<[u8]>::first_chunk)?;
        Some(u64::from_le_bytes(*bytes))
    };
    let version = word(8).unwrap_or(0);
    if version >> 24 != 3 || version >> 16 & 0xff != at.minor {
        return Err("its offset table has a different version");
    }
    let is_free_threaded = word(FREE_THREADED).is_some_and(|flag| flag != 0);
    let offset = |at: usize| match word(at) {
        Some(offset) if offset < MAX_OFFSET => Ok(offset as u32),
        _ => Err("its offset table contains an invalid offset"),
    };
    let frame_bytes = offset(at.frame_size)?;
    let frame_members = [
        offset(at.frame_previous)?,
        offset(at.frame_executable)?,
        offset(at.frame_instruction)?,
        offset(at.frame_owner)?,
    ];
    if frame_bytes > BLOCK_BYTES || frame_members.iter().any(|&member| member >= frame_bytes) {
        return Err("its offset table describes an unknown frame layout");
    }
    let [frame_previous, frame_code, frame_instruction, frame_owner] = frame_members;
    let first_line = offset(at.code_first_line)?;
    let version = first_line + VERSION_BEHIND_FIRST_LINE;
    let code_identity = first_line & !7;
    let text_size = offset(at.text_ascii_size)?;
    let code_adaptive = offset(at.code_adaptive)?;
    let layout = Layout {
        boundary: boundary::SHIM,
        runtime_interpreters: offset(at.interpreters_head)?,
        interpreter_next: offset(at.interpreter_next)?,
        interpreter_threads: offset(at.threads_head)?,
        thread_next: offset(at.thread_next)?,
        thread_interpreter: offset(at.thread_interpreter)?,
        thread_id: offset(at.thread_id)?,
        thread_frame: offset(at.current_frame)?,
        cframe_frame: NO_CFRAME,
        cframe_previous: 0,
        frame_bytes,
        frame_previous,
        frame_code,
        frame_instruction,
        frame_owner,
        shim_owner: SHIM_OWNER,
        code_identity,
        identity_first: first_line - code_identity,
        identity_second: version - code_identity,
        identity_name: 0,
        identity_file: 0,
        text_data: 0,
        code_instructions: code_adaptive,
        position_shift: 1,
    };
    debug_assert!(layout.identity_second + 4 <= IDENTITY_BYTES);
    let copies = match at.code_copies {
        Some(at) if is_free_threaded => Some(CopyMembers {
            array: offset(at)?,
            instructions: code_adaptive,
        }),
        _ => None,
    };
    let members = CodeMembers {
        // The array grows while the code runs.
        size: copies.map_or(code_adaptive, |copies| copies.array),
        filename: offset(at.code_filename)?,
        name: offset(at.code_name)?,
        qualified_name: Some(offset(at.code_qualified_name)?),
        line_table: offset(at.code_line_table)?,
        first_line,
        copies,
    };
    let code = CodeLayout {
        lines: LineTable::Locations,
        code: members,
        references: match is_free_threaded {
            true => References::Two,
            false => References::One,
        },
        identity: IdentityMembers {
            first: first_line,
            second: version,
            has_texts: false,
        },
        bytes_size: offset(at.bytes_size)?,
        bytes_data: offset(at.bytes_data)?,
        text: TextLayout {
            length: offset(at.text_length)?,
            state: offset(at.text_state)?,
            ascii_data: text_size,
            other_data: text_size + UTF8_MEMBERS,
            flags: match copies {
                Some(_) => TextFlags::AfterByte,
                None => TextFlags::AfterBits,
            },
        },
    };
    Ok((layout, code))
}
