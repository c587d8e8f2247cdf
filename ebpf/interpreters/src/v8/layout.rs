//! The object layout of a version of V8.

use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::fmt;

use memchr::memmem;
use profcol_ebpf_common::interpreter::v8;

use super::positions::PositionFormat;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version {
    pub major: u32,
    pub minor: u32,
    pub build: u32,
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.major, self.minor, self.build)
    }
}

impl Version {
    const fn new(major: u32, minor: u32, build: u32) -> Self {
        Self {
            major,
            minor,
            build,
        }
    }
}

/// The oldest supported version, of Node.js 16.
pub const OLDEST: Version = Version::new(9, 4, 0);
/// The newest tested version. In later ones, constants that V8 does not export may differ.
pub const NEWEST: Version = Version::new(14, 6, u32::MAX);

/// Instance types, and offsets in objects.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeapLayout {
    /// For the BPF programs.
    #[serde(with = "WalkLayout")]
    pub walk: v8::Layout,
    pub types: Types,
    pub shared: SharedOffsets,
    pub script: ScriptOffsets,
    pub scope_info: ScopeInfoOffsets,
    pub bytecode: BytecodeOffsets,
    pub positions: PositionFormat,
    pub code: CodeOffsets,
    pub frame_types: FrameTypes,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "v8::Layout")]
struct WalkLayout {
    function_shared: u16,
    has_unique_id: u16,
    shared_numbers: u32,
}

/// Types of frames without a function.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FrameTypes {
    pub regular_expression: Option<u32>,
    pub web_assembly: Option<u32>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Types {
    pub first_nonstring: u16,
    pub shared: u16,
    pub scope_info: u16,
    pub script: u16,
    pub code: u16,
    pub bytecode_array: u16,
    pub interpreter_data: u16,
}

/// In a `SharedFunctionInfo`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SharedOffsets {
    pub data: u64,
    pub name_or_scope_info: u64,
    pub script: u64,
    pub numbers: u64,
}

/// In a `Script`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScriptOffsets {
    pub source_url: u64,
}

/// Words of a `ScopeInfo` after its map.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScopeInfoOffsets {
    pub local_count: u64,
    pub first_local: u64,
    /// The offset of the source positions; None if they follow the name.
    pub positions: Option<u64>,
}

/// In a `BytecodeArray`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BytecodeOffsets {
    pub data: u32,
    pub positions: u64,
    /// None if the file has no such table.
    pub sizes: Option<BytecodeSizes>,
}

/// Sizes of bytecodes by operand width.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BytecodeSizes(Vec<u8>);

impl BytecodeSizes {
    const WIDTHS: usize = 3;
    /// The first bytecodes are prefixes: the operands of the next one are wide, or extra wide.
    const PREFIXES: [usize; 4] = [1, 2, 1, 2];
    /// The sizes of the prefixes, and of the bytecodes after them, which are for breakpoints and have no operands, one, and so on.
    const FIRST: [[u8; 9]; Self::WIDTHS] = [
        [1, 1, 1, 1, 1, 2, 3, 4, 5],
        [1, 1, 1, 1, 1, 3, 5, 7, 9],
        [1, 1, 1, 1, 1, 5, 9, 13, 17],
    ];
    /// Bytes have no more values.
    const MAX_BYTECODES: usize = 256;
    pub const MAX_BYTES: usize = Self::WIDTHS * Self::MAX_BYTECODES;

    pub fn new(table: Vec<u8>) -> Option<Self> {
        let is_whole = !table.is_empty() && table.len().is_multiple_of(Self::WIDTHS);
        is_whole.then_some(Self(table))
    }

    /// Recognizes the table by how it begins for each width.
    pub fn find(constants: &[u8]) -> Option<Self> {
        let [narrow, wide, _] = Self::FIRST;
        memmem::find_iter(constants, &narrow).find_map(|start| {
            let table = constants.get(start..)?;
            let near = table.get(..table.len().min(Self::MAX_BYTECODES + wide.len()))?;
            let counts = memmem::find_iter(near, &wide);
            counts.into_iter().find_map(|count| {
                let table = table.get(..Self::WIDTHS * count)?;
                let mut rows = table.chunks_exact(count).zip(Self::FIRST);
                let is_it = rows.all(|(row, first)| row.starts_with(&first));
                is_it.then(|| Self(table.to_vec()))
            })
        })
    }

    /// The size of the first bytecode with its prefix.
    pub fn of(&self, bytes: &[u8]) -> Option<usize> {
        let count = self.0.len() / Self::WIDTHS;
        let first = usize::from(*bytes.first()?);
        let (prefix, width, code) = match Self::PREFIXES.get(first) {
            Some(&width) => (1, width, usize::from(*bytes.get(1)?)),
            None => (0, 0, first),
        };
        let size = self.0.get(width * count + code).filter(|_| code < count)?;
        (*size > 0).then_some(prefix + usize::from(*size))
    }
}

/// In a `Code`, and in its deoptimization data.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CodeOffsets {
    pub instructions: Instructions,
    pub instruction_size: u64,
    pub flags: u64,
    pub positions: u64,
    pub data: u64,
    pub kind_mask: u32,
    pub baseline_kind: u32,
    pub literals: u64,
    pub shared: u64,
    /// `shared` is in a separate object.
    pub is_shared_wrapped: bool,
    pub inlining_positions: u64,
}

/// The location of a `Code`'s instructions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Instructions {
    /// In the object, at this offset.
    Inside(u64),
    /// In a separate object; their address is at this offset.
    Apart(u64),
}

impl HeapLayout {
    /// `constants` are those of the file, without the prefix `v8dbg_`.
    pub fn new(
        version: Version,
        constants: &HashMap<String, u32>,
        sizes: Option<BytecodeSizes>,
    ) -> Result<Self, &'static str> {
        if version < OLDEST {
            return Err("versions before 9.4, of Node.js 16, are not supported");
        }
        if version > NEWEST {
            return Err("newer than this version of profcol supports");
        }
        let constants = Constants(constants);
        if constants.any(&["SmiShiftSize"]) != Some(31) {
            return Err("pointer compression is not supported");
        }
        let layout = move || -> Option<Self> {
            let numbers = constants.offset("SharedFunctionInfo__length")?;
            Some(Self {
                walk: v8::Layout {
                    function_shared: constants.offset("JSFunction__shared")? as u16,
                    shared_numbers: numbers as u32,
                    has_unique_id: u16::from(version >= Version::new(12, 4, 0)),
                },
                types: constants.types()?,
                shared: SharedOffsets {
                    data: 8,
                    name_or_scope_info: constants
                        .offset("SharedFunctionInfo__name_or_scope_info")?,
                    script: constants
                        .offset("SharedFunctionInfo__script_or_debug_info")
                        .or_else(|| constants.offset("SharedFunctionInfo__script"))?,
                    numbers,
                },
                script: ScriptOffsets {
                    // Before the flags, newer versions have one member more.
                    source_url: constants
                        .offset("Script__compiled_lazy_function_positions")
                        .map_or(104, |positions| positions + 16),
                },
                scope_info: ScopeInfoOffsets {
                    local_count: constants.any(&["scopeinfo_idx_ncontextlocals"])?.into(),
                    first_local: constants.any(&["scopeinfo_idx_first_vars"])?.into(),
                    positions: (version >= Version::new(12, 8, 44)).then_some(3),
                },
                bytecode: BytecodeOffsets {
                    data: constants.offset("BytecodeArray__data").unwrap_or(54) as u32,
                    positions: 8 + 8 * bytecode_members(version),
                    sizes,
                },
                positions: if version >= Version::new(14, 0, 0) {
                    PositionFormat::Flagged
                } else {
                    PositionFormat::Plain
                },
                code: constants.code(version)?,
                frame_types: FrameTypes {
                    regular_expression: constants.any(&["frametype_IrregexpFrame"]),
                    web_assembly: constants.any(&["frametype_WasmFrame"]),
                },
            })
        };
        let layout = layout().ok_or("it does not export debugger constants (`v8dbg_*`)")?;
        // The programs read a block of this size.
        if layout.walk.function_shared > 112 || layout.walk.function_shared % 8 != 0 {
            return Err("its `SharedFunctionInfo` has an unknown layout");
        }
        Ok(layout)
    }
}

/// Words before the source position table.
fn bytecode_members(version: Version) -> u64 {
    const CHANGES: [(Version, u64); 5] = [
        (Version::new(12, 3, 97), 2),
        (Version::new(12, 3, 43), 3),
        (Version::new(12, 1, 36), 4),
        (Version::new(12, 0, 67), 3),
        (Version::new(11, 9, 86), 2),
    ];
    let change = CHANGES.iter().find(|(since, _)| version >= *since);
    change.map_or(3, |(_, words)| *words)
}

/// The layouts of Node.js 18 and 24, from their files.
pub fn examples() -> Vec<(Version, HeapLayout)> {
    const BOTH: &[(&str, u32)] = &[
        ("CodeKindFieldMask", 15),
        ("FirstNonstringType", 128),
        ("SmiShiftSize", 31),
        ("scopeinfo_idx_ncontextlocals", 2),
    ];
    const OLD: &[(&str, u32)] = &[
        ("CodeKindBaseline", 11),
        ("class_Code__flags__uint32_t", 48),
        ("class_Code__instruction_size__int", 40),
        ("class_Code__instruction_start__uintptr_t", 128),
        ("class_BytecodeArray__data__uintptr_t", 56),
        ("class_JSFunction__shared__SharedFunctionInfo", 24),
        ("class_SharedFunctionInfo__length__uint16_t", 40),
        ("class_SharedFunctionInfo__name_or_scope_info__Object", 16),
        (
            "class_SharedFunctionInfo__script_or_debug_info__HeapObject",
            32,
        ),
        ("scopeinfo_idx_first_vars", 3),
        ("type_BytecodeArray__BYTECODE_ARRAY_TYPE", 195),
        ("type_Code__CODE_TYPE", 240),
        ("type_InterpreterData__INTERPRETER_DATA_TYPE", 162),
        ("type_ScopeInfo__SCOPE_INFO_TYPE", 256),
        ("type_Script__SCRIPT_TYPE", 170),
        ("type_SharedFunctionInfo__SHARED_FUNCTION_INFO_TYPE", 257),
    ];
    const NEW: &[(&str, u32)] = &[
        ("CodeKindBaseline", 10),
        ("DeoptimizationDataInliningPositionsIndex", 8),
        ("DeoptimizationDataLiteralArrayIndex", 3),
        ("DeoptimizationDataWrappedSharedFunctionInfoIndex", 7),
        ("class_BytecodeArray__data__uintptr_t", 64),
        ("class_Code__flags__uint32_t", 52),
        ("class_Code__instruction_size__int", 56),
        ("class_Code__instruction_start__Address", 40),
        ("class_JSFunction__shared__SharedFunctionInfo", 32),
        ("class_SharedFunctionInfo__length__uint16_t", 48),
        (
            "class_SharedFunctionInfo__name_or_scope_info__Tagged_NameOrScopeInfoT_",
            24,
        ),
        ("class_SharedFunctionInfo__script__Tagged_HeapObject_", 40),
        (
            "class_Script__compiled_lazy_function_positions__Tagged_Object_",
            96,
        ),
        ("scopeinfo_idx_first_vars", 5),
        ("type_BytecodeArray__BYTECODE_ARRAY_TYPE", 186),
        ("type_Code__CODE_TYPE", 187),
        ("type_InterpreterData__INTERPRETER_DATA_TYPE", 188),
        ("type_ScopeInfo__SCOPE_INFO_TYPE", 280),
        ("type_Script__SCRIPT_TYPE", 167),
        ("type_SharedFunctionInfo__SHARED_FUNCTION_INFO_TYPE", 282),
    ];
    let versions = [
        (Version::new(10, 2, 154), OLD),
        (Version::new(13, 6, 233), NEW),
    ];
    let layouts = versions.into_iter().filter_map(|(version, own)| {
        let constants = BOTH.iter().chain(own);
        let constants = constants.map(|(name, value)| ((*name).to_owned(), *value));
        let sizes = BytecodeSizes::new([1, 2, 3].repeat(64));
        let layout = HeapLayout::new(version, &constants.collect(), sizes);
        Some((version, layout.ok()?))
    });
    layouts.collect()
}

struct Constants<'a>(&'a HashMap<String, u32>);

impl Constants<'_> {
    fn any(&self, names: &[&str]) -> Option<u32> {
        names.iter().find_map(|name| self.0.get(*name).copied())
    }

    /// The offset of a class member; the name ends with its type, which differs between versions.
    fn offset(&self, member: &str) -> Option<u64> {
        let prefix = format!("class_{member}__");
        let found = self.0.iter().find(|(name, _)| name.starts_with(&prefix));
        found.map(|(_, offset)| u64::from(*offset))
    }

    fn instance_type(&self, class: &str) -> Option<u16> {
        let prefix = format!("type_{class}__");
        let found = self.0.iter().find(|(name, _)| name.starts_with(&prefix));
        u16::try_from(*found?.1).ok()
    }

    fn types(&self) -> Option<Types> {
        Some(Types {
            first_nonstring: u16::try_from(self.any(&["FirstNonstringType"])?).ok()?,
            shared: self.instance_type("SharedFunctionInfo")?,
            scope_info: self.instance_type("ScopeInfo")?,
            script: self.instance_type("Script")?,
            code: self.instance_type("Code")?,
            bytecode_array: self.instance_type("BytecodeArray")?,
            interpreter_data: self.instance_type("InterpreterData")?,
        })
    }

    fn code(&self, version: Version) -> Option<CodeOffsets> {
        let instructions = if version >= Version::new(11, 1, 204) {
            Instructions::Apart(self.offset("Code__instruction_start").unwrap_or(40))
        } else {
            Instructions::Inside(self.offset("Code__instruction_start")?)
        };
        let is_trusted = version >= Version::new(12, 3, 0);
        let index = |name: &str| {
            let index = self.any(&[&format!("DeoptimizationData{name}Index")]);
            index.map(u64::from)
        };
        let wrapped = index("WrappedSharedFunctionInfo").or(index("SharedFunctionInfoWrapper"));
        Some(CodeOffsets {
            instructions,
            instruction_size: self.offset("Code__instruction_size").unwrap_or(56),
            flags: self.offset("Code__flags").unwrap_or(48),
            positions: if is_trusted { 16 } else { 24 },
            data: if is_trusted { 8 } else { 16 },
            kind_mask: self.any(&["CodeKindFieldMask"]).unwrap_or(15),
            baseline_kind: self.any(&["CodeKindBaseline"]).unwrap_or(11),
            literals: index("LiteralArray").unwrap_or(2),
            shared: wrapped.or(index("SharedFunctionInfo")).unwrap_or(6),
            is_shared_wrapped: wrapped.is_some(),
            inlining_positions: index("InliningPositions").unwrap_or(7),
        })
    }
}
