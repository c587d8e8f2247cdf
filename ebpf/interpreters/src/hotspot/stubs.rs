//! Code of the runtime that is no method.

use profcol_ebpf_common::interpreter::hotspot::{AddressRange, code_address};

use super::HotSpotError;
use super::layout::Layout;
use super::tables::{Tables, string};
use crate::memory::Memory;

/// Stubs of which many share a blob have their addresses in static members.
const TYPES: [&str; 2] = ["StubRoutines", "StubRoutines::x86"];
/// It is inside of another stub.
const NO_STUB: &str = "_call_stub_return_address";

pub fn from_tables(tables: &Tables, bias: u64) -> Vec<(String, u64)> {
    let members = TYPES.into_iter().flat_map(|of| tables.statics(of));
    let members = members.filter(|(name, _)| *name != NO_STUB);
    members
        .map(|(name, address)| {
            let name = name.trim_start_matches('_').to_owned();
            (name, address.wrapping_sub(bias))
        })
        .collect()
}

/// The code of a blob.
pub fn code(
    layout: &Layout,
    memory: &impl Memory,
    blob: u64,
) -> Result<AddressRange, HotSpotError> {
    let common = &layout.common;
    let address = |offset: u16| {
        let word = memory.word(blob.wrapping_add(offset.into()))?;
        Ok::<_, HotSpotError>(if common.code_address == code_address::OFFSET {
            blob.wrapping_add(word & 0xffff_ffff)
        } else {
            word
        })
    };
    Ok(AddressRange {
        start: address(common.blob_code_begin)?,
        end: address(common.blob_code_end)?,
    })
}

/// The name of the stub that is at an offset of a blob's code.
pub fn name(
    layout: &Layout,
    memory: &impl Memory,
    bias: u64,
    blob: u64,
    offset: u32,
) -> Result<String, HotSpotError> {
    let name = memory.word(blob.wrapping_add(layout.common.blob_name.into()))?;
    let name = string(memory, name)?;
    if !name.starts_with("StubRoutines") {
        return Ok(name);
    }
    let code = code(layout, memory, blob)?;
    let pc = code.start.wrapping_add(offset.into());
    let mut nearest = (code.start, None);
    for (stub, place) in &layout.stubs {
        let start = memory.word(place.wrapping_add(bias))?;
        if start >= nearest.0 && start <= pc && code.holds(start) {
            nearest = (start, Some(stub));
        }
    }
    Ok(match nearest.1 {
        Some(stub) => format!("StubRoutines::{stub}"),
        None => name,
    })
}
