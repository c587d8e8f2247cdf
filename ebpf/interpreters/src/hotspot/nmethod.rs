//! Compiled code, as far as names need it.

use super::HotSpotError;
use super::layout::Layout;
use super::members::{DebugMembers, Metadata, ScopesData};
use super::stubs;
use crate::memory::Memory;

/// Of descriptors of pcs and scopes.
const MAX_DEBUG_BYTES: u64 = 4 << 20;

/// An nmethod, and where it describes its code.
#[derive(Clone, Copy, Debug)]
pub struct Nmethod {
    pub compile_id: u32,
    pub method: u64,
    /// Of `PcDesc`s.
    pub pcs: u64,
    pub pcs_bytes: u64,
    pub scopes_data: u64,
    /// Of methods; None where it is not known.
    pub metadata: Option<u64>,
}

impl Nmethod {
    pub fn read(layout: &Layout, memory: &impl Memory, address: u64) -> Result<Self, HotSpotError> {
        let members = &layout.nmethod;
        let word = |offset: u16| memory.word(address.wrapping_add(offset.into()));
        let number = |offset: u16| Ok::<_, HotSpotError>(u64::from(word(offset)? as u32));
        let own = |offset: u16| Ok::<_, HotSpotError>(address.wrapping_add(number(offset)?));
        let (pcs, pcs_end, scopes_data) = match members.debug {
            DebugMembers::Own {
                ref scopes_data,
                pcs,
                pcs_end,
            } => {
                let scopes_data = match *scopes_data {
                    ScopesData::Offset(offset) => own(offset)?,
                    ScopesData::Pointer(offset) => word(offset)?,
                };
                (own(pcs)?, own(pcs_end)?, scopes_data)
            }
            DebugMembers::Immutable {
                data,
                size,
                pcs,
                scopes_data,
            } => {
                let data = word(data)?;
                if number(size)? > MAX_DEBUG_BYTES {
                    return Err(HotSpotError::Invalid("the data of compiled code"));
                }
                let scopes_data = data.wrapping_add(number(scopes_data)?);
                (data.wrapping_add(number(pcs)?), scopes_data, scopes_data)
            }
        };
        let pcs_bytes = pcs_end.wrapping_sub(pcs);
        if pcs_bytes > MAX_DEBUG_BYTES {
            return Err(HotSpotError::Invalid("the data of compiled code"));
        }
        let metadata = match members.metadata {
            Metadata::Own(offset) => Some(own(offset)?),
            Metadata::BehindCode(offset) => {
                let code = stubs::code(layout, memory, address)?;
                Some(code.end.wrapping_add(word(offset)? & 0xffff))
            }
            Metadata::Mutable {
                data,
                relocation_size,
            } => Some(word(data)?.wrapping_add(number(relocation_size)?)),
            Metadata::Unknown => None,
        };
        Ok(Self {
            compile_id: compile_id(layout, memory, address)?,
            method: word(members.method)?,
            pcs,
            pcs_bytes,
            scopes_data,
            metadata,
        })
    }
}

pub fn compile_id(
    layout: &Layout,
    memory: &impl Memory,
    address: u64,
) -> Result<u32, HotSpotError> {
    let place = address.wrapping_add(layout.common.nmethod_compile_id.into());
    Ok(memory.word(place)? as u32)
}
