//! Signatures of methods in ReadyToRun images: those of ECMA-335 II.23.2, with flags in front and some more elements.

use crate::MethodToken;
use crate::bytes::Bytes;

/// Types within types.
const MAX_DEPTH: u32 = 64;

mod flag {
    pub const METHOD_INSTANTIATION: u32 = 0x04;
    pub const SLOT_INSTEAD_OF_TOKEN: u32 = 0x08;
    pub const MEMBER_REF_TOKEN: u32 = 0x10;
    pub const CONSTRAINED: u32 = 0x20;
    pub const OWNER_TYPE: u32 = 0x40;
    pub const UPDATE_CONTEXT: u32 = 0x80;
}

/// In front of a type from the metadata of another module.
const MODULE_ZAPSIG: u8 = 0x3f;

/// Takes the signature of a method. Yields its token, if it is one of this module.
pub(crate) fn method(bytes: &mut Bytes<'_>) -> Option<Option<MethodToken>> {
    let flags = bytes.compressed()?;
    let mut is_foreign = false;
    if flags & flag::UPDATE_CONTEXT != 0 {
        is_foreign |= bytes.compressed()? != 0;
    }
    if flags & flag::OWNER_TYPE != 0 {
        let mut ahead = *bytes;
        if ahead.u8()? == MODULE_ZAPSIG {
            is_foreign |= ahead.compressed()? != 0;
        }
        skip_type(bytes, MAX_DEPTH)?;
    }
    let row = bytes.compressed()?;
    let token = match flags {
        _ if is_foreign || flags & flag::SLOT_INSTEAD_OF_TOKEN != 0 => None,
        _ if flags & flag::MEMBER_REF_TOKEN != 0 => Some(MethodToken::MemberRef(row)),
        _ => Some(MethodToken::MethodDef(row)),
    };
    if flags & flag::METHOD_INSTANTIATION != 0 {
        for _ in 0..bytes.compressed()? {
            skip_type(bytes, MAX_DEPTH)?;
        }
    }
    if flags & flag::CONSTRAINED != 0 {
        skip_type(bytes, MAX_DEPTH)?;
    }
    Some(token)
}

fn skip_type(bytes: &mut Bytes<'_>, depth: u32) -> Option<()> {
    let depth = depth.checked_sub(1)?;
    match bytes.u8()? {
        // void to string, typedref, IntPtr, UIntPtr, object, __Canon
        0x01..=0x0e | 0x16 | 0x18 | 0x19 | 0x1c | 0x3e => {}
        // Pointer, reference, array, pinned, a structure as native code lays it out
        0x0f | 0x10 | 0x1d | 0x45 | 0x3d => skip_type(bytes, depth)?,
        // Structure, class, generic parameters of type and method
        0x11 | 0x12 | 0x13 | 0x1e | 0x3b => {
            bytes.compressed()?;
        }
        // Array of several dimensions: sizes, then lower bounds
        0x14 => {
            skip_type(bytes, depth)?;
            bytes.compressed()?;
            for _ in 0..2 {
                for _ in 0..bytes.compressed()? {
                    bytes.compressed()?;
                }
            }
        }
        // Instance of a generic type
        0x15 => {
            skip_type(bytes, depth)?;
            for _ in 0..bytes.compressed()? {
                skip_type(bytes, depth)?;
            }
        }
        // Pointer to a function: generic parameters, parameters, result
        0x1b => {
            if bytes.u8()? & 0x10 != 0 {
                bytes.compressed()?;
            }
            for _ in 0..=bytes.compressed()? {
                skip_type(bytes, depth)?;
            }
        }
        // Modifiers; a type of another module
        0x1f | 0x20 | MODULE_ZAPSIG => {
            bytes.compressed()?;
            skip_type(bytes, depth)?;
        }
        _ => return None,
    }
    Some(())
}
