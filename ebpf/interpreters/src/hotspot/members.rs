//! Member offsets by release.

use profcol_ebpf_common::interpreter::hotspot::{self, code_address};

use super::tables::Tables;

/// Since then, blobs store the offsets of their parts, as in JDK 8.
const OFFSETS_AGAIN: u32 = 23;
/// Since then, interpreted frames have a slot for the mirror of their class.
const MIRROR_SLOT: u32 = 9;
/// Since then, no byte of an `UNSIGNED5` is 0.
const UNSIGNED5_EXCLUDES_ZERO: u32 = 20;
/// Many stubs share a blob; static members hold their addresses.
const STUB_TYPES: [&str; 2] = ["StubRoutines", "StubRoutines::x86"];
/// An address inside another stub.
const NO_STUB: &str = "_call_stub_return_address";

/// The layout for the BPF programs.
pub fn common(major: u32, tables: &Tables) -> Option<hotspot::Layout> {
    let has_offsets = tables.offset("CodeBlob", "_code_begin").is_none();
    let blob = |member| tables.offset("CodeBlob", member);
    let nmethod = |member| nmethod_offset(tables, member);
    let deopt_handler = nmethod("_deopt_handler_begin")
        .or_else(|| nmethod("_deopt_handler_offset"))
        .or_else(|| nmethod("_deoptimize_offset"));
    let deopt_mh_handler = nmethod("_deopt_mh_handler_begin")
        .or_else(|| nmethod("_deopt_mh_handler_offset"))
        .or_else(|| nmethod("_deoptimize_mh_offset"));
    let code = if has_offsets {
        (blob("_code_offset")?, blob("_data_offset")?)
    } else {
        (blob("_code_begin")?, blob("_code_end")?)
    };
    Some(hotspot::Layout {
        heap_block_bytes: tables.size("HeapBlock")?,
        blob_name: blob("_name")?,
        blob_code_begin: code.0,
        blob_code_end: code.1,
        blob_frame_size: blob("_frame_size")?,
        blob_frame_complete: blob("_frame_complete_offset")?,
        frame_complete_shift: if major >= OFFSETS_AGAIN { 16 } else { 0 },
        code_address: if has_offsets {
            code_address::OFFSET
        } else {
            code_address::POINTER
        },
        nmethod_compile_id: nmethod("_compile_id")?,
        nmethod_orig_pc_offset: nmethod("_orig_pc_offset")?,
        nmethod_deopt_handler: deopt_handler?,
        nmethod_deopt_mh_handler: deopt_mh_handler.unwrap_or(0),
        method_const_method: tables.offset("Method", "_constMethod")?,
        const_method_code_size: tables.offset("ConstMethod", "_code_size")?,
        const_method_bytes: tables.size("ConstMethod")?,
        frame_bcp: if major >= MIRROR_SLOT { 64 } else { 56 },
    })
}

/// From JDK 9 to 22, the type `CompiledMethod` held a part of the nmethod members.
fn nmethod_offset(tables: &Tables, member: &str) -> Option<u16> {
    tables
        .offset("nmethod", member)
        .or_else(|| tables.offset("CompiledMethod", member))
}

/// The code cache and the interpreter. Static members are file addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CacheMembers {
    pub heaps: Heaps,
    pub heap_memory: u16,
    pub heap_segment_map: u16,
    pub heap_segment_shift: u16,
    pub space_low: u16,
    pub space_high: u16,
    pub interpreter: u64,
    pub queue_buffer: u16,
    pub queue_limit: u16,
    pub call_stub_return: u64,
}

/// The heaps of the code cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Heaps {
    /// JDK 8.
    Single {
        heap: u64,
    },
    Array {
        array: u64,
        length: u16,
        data: u16,
    },
}

impl CacheMembers {
    pub fn read(tables: &Tables, bias: u64) -> Option<Self> {
        let address = |of, member| Some(tables.address(of, member)?.wrapping_sub(bias));
        let heaps = match address("CodeCache", "_heaps") {
            Some(array) => Heaps::Array {
                array,
                length: tables
                    .offset("GrowableArrayBase", "_len")
                    .or_else(|| tables.offset("GenericGrowableArray", "_len"))?,
                data: tables.offset("GrowableArray<int>", "_data")?,
            },
            None => Heaps::Single {
                heap: address("CodeCache", "_heap")?,
            },
        };
        Some(Self {
            heaps,
            heap_memory: tables.offset("CodeHeap", "_memory")?,
            heap_segment_map: tables.offset("CodeHeap", "_segmap")?,
            heap_segment_shift: tables.offset("CodeHeap", "_log2_segment_size")?,
            space_low: tables.offset("VirtualSpace", "_low_boundary")?,
            space_high: tables.offset("VirtualSpace", "_high_boundary")?,
            interpreter: address("AbstractInterpreter", "_code")?,
            queue_buffer: tables.offset("StubQueue", "_stub_buffer")?,
            queue_limit: tables.offset("StubQueue", "_buffer_limit")?,
            call_stub_return: address("StubRoutines", "_call_stub_return_address")?,
        })
    }
}

/// Methods and their names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MethodMembers {
    pub const_method_constants: u16,
    /// In words.
    pub const_method_size: u16,
    pub const_method_flags: u16,
    pub const_method_name: u16,
    pub pool_bytes: u16,
    pub pool_length: u16,
    pub pool_holder: u16,
    pub source_file: SourceFile,
    pub class_name: u16,
    pub symbol_length: u16,
    pub symbol_body: u16,
}

/// The location of the source file name's index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SourceFile {
    Class(u16),
    /// Since JDK 15.
    Pool(u16),
}

impl MethodMembers {
    pub fn read(tables: &Tables) -> Option<Self> {
        let const_method = |member| tables.offset("ConstMethod", member);
        let source_file = match tables.offset("ConstantPool", "_source_file_name_index") {
            Some(offset) => SourceFile::Pool(offset),
            None => SourceFile::Class(tables.offset("InstanceKlass", "_source_file_name_index")?),
        };
        let symbol_length = tables.offset("Symbol", "_length").or_else(|| {
            // In JDK 12 to 14 one number holds both; the length is the upper half.
            Some(tables.offset("Symbol", "_length_and_refcount")? + 2)
        });
        Some(Self {
            const_method_constants: const_method("_constants")?,
            const_method_size: const_method("_constMethod_size")?,
            const_method_flags: const_method("_flags").or_else(|| const_method("_flags._flags"))?,
            const_method_name: const_method("_name_index")?,
            pool_bytes: tables.size("ConstantPool")?,
            pool_length: tables.offset("ConstantPool", "_length")?,
            pool_holder: tables.offset("ConstantPool", "_pool_holder")?,
            source_file,
            class_name: tables.offset("Klass", "_name")?,
            symbol_length: symbol_length?,
            symbol_body: tables.offset("Symbol", "_body")?,
        })
    }
}

/// Nmethods and their debug information.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NmethodMembers {
    pub method: u16,
    pub bytes: u16,
    pub debug: DebugMembers,
    pub metadata: Metadata,
    pub excludes_zero: bool,
}

/// The location of the PC and scope descriptors; offsets are 32-bit numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DebugMembers {
    /// In the blob.
    Own {
        scopes_data: ScopesData,
        pcs: u16,
        pcs_end: u16,
    },
    /// Since JDK 23, behind a pointer.
    Immutable {
        data: u16,
        size: u16,
        pcs: u16,
        scopes_data: u16,
    },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ScopesData {
    Offset(u16),
    Pointer(u16),
}

/// The location of the methods that scopes refer to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Metadata {
    /// At a 32-bit offset from the blob.
    Own(u16),
    /// At a 16-bit offset from the end of the code.
    BehindCode(u16),
    /// After the relocations, in separate data.
    Mutable { data: u16, relocation_size: u16 },
    /// Only the compiled method has a name.
    Unknown,
}

impl NmethodMembers {
    pub fn read(major: u32, tables: &Tables) -> Option<Self> {
        let member = |name| nmethod_offset(tables, name);
        let debug = match member("_immutable_data") {
            Some(data) => DebugMembers::Immutable {
                data,
                size: member("_immutable_data_size")?,
                pcs: member("_scopes_pcs_offset")?,
                scopes_data: member("_scopes_data_offset")?,
            },
            None => DebugMembers::Own {
                scopes_data: match member("_scopes_data_begin") {
                    Some(pointer) => ScopesData::Pointer(pointer),
                    None => ScopesData::Offset(member("_scopes_data_offset")?),
                },
                pcs: member("_scopes_pcs_offset")?,
                pcs_end: member("_dependencies_offset")?,
            },
        };
        let metadata_offset = member("_metadata_offset").or_else(|| {
            // Builds of JDK 8 may lack it in their tables; it is between two that are there.
            let (before, after) = (member("_oops_offset")?, member("_scopes_data_offset")?);
            (after.checked_sub(before) == Some(8)).then(|| after - 4)
        });
        let is_own = matches!(debug, DebugMembers::Own { .. });
        let metadata = match (tables.offset("CodeBlob", "_mutable_data"), metadata_offset) {
            (Some(data), _) => Metadata::Mutable {
                data,
                relocation_size: tables.offset("CodeBlob", "_relocation_size")?,
            },
            (None, Some(offset)) if is_own => Metadata::Own(offset),
            (None, Some(offset)) => Metadata::BehindCode(offset),
            (None, None) => Metadata::Unknown,
        };
        Some(Self {
            method: member("_method")?,
            bytes: tables.size("nmethod")?,
            debug,
            metadata,
            excludes_zero: major >= UNSIGNED5_EXCLUDES_ZERO,
        })
    }
}

/// The names of stubs, and where the file stores their addresses.
pub fn stub_members(tables: &Tables, bias: u64) -> Vec<(String, u64)> {
    let members = STUB_TYPES.into_iter().flat_map(|of| tables.statics(of));
    let members = members.filter(|(name, _)| *name != NO_STUB);
    members
        .map(|(name, address)| {
            let name = name.trim_start_matches('_').to_owned();
            (name, address.wrapping_sub(bias))
        })
        .collect()
}
