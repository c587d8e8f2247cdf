//! The columns of the metadata tables (ECMA-335 II.22; from `Document` on, those of portable PDBs).

/// By number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Table(pub u8);

impl Table {
    pub const MODULE: Self = Self(0x00);
    pub const TYPE_REF: Self = Self(0x01);
    pub const TYPE_DEF: Self = Self(0x02);
    pub const METHOD_DEF: Self = Self(0x06);
    pub const MEMBER_REF: Self = Self(0x0a);
    pub const TYPE_SPEC: Self = Self(0x1b);
    pub const ASSEMBLY: Self = Self(0x20);
    pub const NESTED_CLASS: Self = Self(0x29);
    pub const GENERIC_PARAM: Self = Self(0x2a);
    pub const DOCUMENT: Self = Self(0x30);
    pub const METHOD_DEBUG_INFORMATION: Self = Self(0x31);
}

/// Tables have six-bit numbers.
pub(crate) const TABLES: usize = 64;

/// No row is longer.
pub(crate) const MAX_ROW: usize = 32;

#[derive(Clone, Copy, Debug)]
pub(crate) enum Column {
    U16,
    U32,
    /// Offset in the heap `#Strings`.
    String,
    /// Index into the heap `#GUID`.
    Guid,
    /// Offset in the heap `#Blob`.
    Blob,
    /// Row of a table.
    Row(u8),
    /// Row of one of several tables, and which one in that many low bits.
    Coded(u32, &'static [u8]),
}

use Column::{Blob, Coded, Guid, Row, String, U16, U32};

const TYPE_DEF_OR_REF: Column = Coded(2, &[0x02, 0x01, 0x1b]);
const HAS_CONSTANT: Column = Coded(2, &[0x04, 0x08, 0x17]);
const HAS_CUSTOM_ATTRIBUTE: Column = Coded(
    5,
    &[
        0x06, 0x04, 0x01, 0x02, 0x08, 0x09, 0x0a, 0x00, 0x0e, 0x17, 0x14, 0x11, 0x1a, 0x1b, 0x20,
        0x23, 0x26, 0x27, 0x28, 0x2a, 0x2c, 0x2b,
    ],
);
const HAS_FIELD_MARSHAL: Column = Coded(1, &[0x04, 0x08]);
const HAS_DECL_SECURITY: Column = Coded(2, &[0x02, 0x06, 0x20]);
const MEMBER_REF_PARENT: Column = Coded(3, &[0x02, 0x01, 0x1a, 0x06, 0x1b]);
const HAS_SEMANTICS: Column = Coded(1, &[0x14, 0x17]);
const METHOD_DEF_OR_REF: Column = Coded(1, &[0x06, 0x0a]);
const MEMBER_FORWARDED: Column = Coded(1, &[0x04, 0x06]);
const IMPLEMENTATION: Column = Coded(2, &[0x26, 0x23, 0x27]);
const CUSTOM_ATTRIBUTE_TYPE: Column = Coded(3, &[0x06, 0x0a]);
const RESOLUTION_SCOPE: Column = Coded(2, &[0x00, 0x1a, 0x23, 0x01]);
const TYPE_OR_METHOD_DEF: Column = Coded(1, &[0x02, 0x06]);
const HAS_CUSTOM_DEBUG_INFORMATION: Column = Coded(
    5,
    &[
        0x06, 0x04, 0x01, 0x02, 0x08, 0x09, 0x0a, 0x00, 0x0e, 0x17, 0x14, 0x11, 0x1a, 0x1b, 0x20,
        0x23, 0x26, 0x27, 0x28, 0x2a, 0x2c, 0x2b, 0x30, 0x32, 0x33, 0x34, 0x35,
    ],
);

/// `None` for numbers without a table.
pub(crate) fn columns(table: Table) -> Option<&'static [Column]> {
    Some(match table.0 {
        // Module: generation, name, ids
        0x00 => &[U16, String, Guid, Guid, Guid],
        // TypeRef: scope, name, namespace
        0x01 => &[RESOLUTION_SCOPE, String, String],
        // TypeDef: flags, name, namespace, base, first field, first method
        0x02 => &[U32, String, String, TYPE_DEF_OR_REF, Row(0x04), Row(0x06)],
        // FieldPtr
        0x03 => &[Row(0x04)],
        // Field
        0x04 => &[U16, String, Blob],
        // MethodPtr
        0x05 => &[Row(0x06)],
        // MethodDef: address, implementation flags, flags, name, signature, first parameter
        0x06 => &[U32, U16, U16, String, Blob, Row(0x08)],
        // ParamPtr
        0x07 => &[Row(0x08)],
        // Param
        0x08 => &[U16, U16, String],
        // InterfaceImpl
        0x09 => &[Row(0x02), TYPE_DEF_OR_REF],
        // MemberRef: parent, name, signature
        0x0a => &[MEMBER_REF_PARENT, String, Blob],
        // Constant
        0x0b => &[U16, HAS_CONSTANT, Blob],
        // CustomAttribute
        0x0c => &[HAS_CUSTOM_ATTRIBUTE, CUSTOM_ATTRIBUTE_TYPE, Blob],
        // FieldMarshal
        0x0d => &[HAS_FIELD_MARSHAL, Blob],
        // DeclSecurity
        0x0e => &[U16, HAS_DECL_SECURITY, Blob],
        // ClassLayout
        0x0f => &[U16, U32, Row(0x02)],
        // FieldLayout
        0x10 => &[U32, Row(0x04)],
        // StandAloneSig
        0x11 => &[Blob],
        // EventMap
        0x12 => &[Row(0x02), Row(0x14)],
        // EventPtr
        0x13 => &[Row(0x14)],
        // Event
        0x14 => &[U16, String, TYPE_DEF_OR_REF],
        // PropertyMap
        0x15 => &[Row(0x02), Row(0x17)],
        // PropertyPtr
        0x16 => &[Row(0x17)],
        // Property
        0x17 => &[U16, String, Blob],
        // MethodSemantics
        0x18 => &[U16, Row(0x06), HAS_SEMANTICS],
        // MethodImpl
        0x19 => &[Row(0x02), METHOD_DEF_OR_REF, METHOD_DEF_OR_REF],
        // ModuleRef
        0x1a => &[String],
        // TypeSpec
        0x1b => &[Blob],
        // ImplMap
        0x1c => &[U16, MEMBER_FORWARDED, String, Row(0x1a)],
        // FieldRVA
        0x1d => &[U32, Row(0x04)],
        // EncLog
        0x1e => &[U32, U32],
        // EncMap
        0x1f => &[U32],
        // Assembly: hash, version, flags, key, name, culture
        0x20 => &[U32, U16, U16, U16, U16, U32, Blob, String, String],
        // AssemblyProcessor
        0x21 => &[U32],
        // AssemblyOS
        0x22 => &[U32, U32, U32],
        // AssemblyRef
        0x23 => &[U16, U16, U16, U16, U32, Blob, String, String, Blob],
        // AssemblyRefProcessor
        0x24 => &[U32, Row(0x23)],
        // AssemblyRefOS
        0x25 => &[U32, U32, U32, Row(0x23)],
        // File
        0x26 => &[U32, String, Blob],
        // ExportedType
        0x27 => &[U32, U32, String, String, IMPLEMENTATION],
        // ManifestResource
        0x28 => &[U32, U32, String, IMPLEMENTATION],
        // NestedClass: nested type, enclosing type
        0x29 => &[Row(0x02), Row(0x02)],
        // GenericParam: number, flags, owner, name
        0x2a => &[U16, U16, TYPE_OR_METHOD_DEF, String],
        // MethodSpec
        0x2b => &[METHOD_DEF_OR_REF, Blob],
        // GenericParamConstraint
        0x2c => &[Row(0x2a), TYPE_DEF_OR_REF],
        // Document: name, hash algorithm, hash, language
        0x30 => &[Blob, Guid, Blob, Guid],
        // MethodDebugInformation: document, sequence points
        0x31 => &[Row(0x30), Blob],
        // LocalScope
        0x32 => &[Row(0x06), Row(0x35), Row(0x33), Row(0x34), U32, U32],
        // LocalVariable
        0x33 => &[U16, U16, String],
        // LocalConstant
        0x34 => &[String, Blob],
        // ImportScope
        0x35 => &[Row(0x35), Blob],
        // StateMachineMethod
        0x36 => &[Row(0x06), Row(0x06)],
        // CustomDebugInformation
        0x37 => &[HAS_CUSTOM_DEBUG_INFORMATION, Guid, Blob],
        _ => return None,
    })
}
