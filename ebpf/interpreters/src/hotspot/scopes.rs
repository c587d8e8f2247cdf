//! The functions that compiled code is of at an instruction: the one that was compiled, and those that
//! were inlined there.

use profcol_ebpf_common::interpreter::hotspot;

use super::HotSpotError;
use super::layout::Layout;
use super::nmethod::Nmethod;
use super::unsigned5::Unsigned5;
use crate::memory::Memory;

/// The compilers stop at 15 by default.
const MAX_DEPTH: usize = 64;
/// Methods that one nmethod names.
const MAX_METADATA: u32 = 1 << 16;

const PC_DESC_BYTES: usize = 16;
/// Three integers.
const SCOPE_BYTES: usize = 15;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scope {
    pub method: u64,
    pub bci: u32,
}

/// The scopes at an offset of the code, innermost first; at least one.
pub fn read(
    layout: &Layout,
    memory: &impl Memory,
    nmethod: &Nmethod,
    offset: u32,
) -> Result<Vec<Scope>, HotSpotError> {
    let outermost = Scope {
        method: nmethod.method,
        bci: hotspot::NO_BCI,
    };
    let Some(metadata) = nmethod.metadata.filter(|_| offset != hotspot::EDGE) else {
        return Ok(vec![outermost]);
    };
    let descriptors = memory.bytes(nmethod.pcs, nmethod.pcs_bytes as usize)?;
    let Some(mut at) = scope_at(&descriptors, offset) else {
        return Ok(vec![outermost]);
    };
    let mut scopes = Vec::new();
    // 0 is no scope.
    while at != 0 && scopes.len() < MAX_DEPTH {
        let place = nmethod.scopes_data.wrapping_add(at.into());
        let bytes = memory.bytes(place, SCOPE_BYTES)?;
        let mut reader = Unsigned5::new(&bytes, layout.nmethod.excludes_zero);
        let (Some(sender), Some(method), Some(bci)) =
            (reader.unsigned(), reader.unsigned(), reader.unsigned())
        else {
            return Err(HotSpotError::Invalid("a scope of compiled code"));
        };
        // A scope stands behind the one that it is inlined into.
        if sender >= at || method == 0 || method > MAX_METADATA {
            return Err(HotSpotError::Invalid("a scope of compiled code"));
        }
        let slot = metadata.wrapping_add(u64::from(method - 1) * 8);
        scopes.push(Scope {
            method: memory.word(slot)?,
            // -1 is where the function is entered.
            bci: bci.checked_sub(1).unwrap_or(hotspot::NO_BCI),
        });
        at = sender;
    }
    if scopes.is_empty() {
        scopes.push(outermost);
    }
    Ok(scopes)
}

/// Where the scope is of the first descriptor that is not before an offset: descriptors stand where the
/// code may stop, and describe what leads there.
fn scope_at(descriptors: &[u8], offset: u32) -> Option<u32> {
    let (descriptors, _) = descriptors.as_chunks::<PC_DESC_BYTES>();
    let number = |bytes: &[u8; PC_DESC_BYTES], at: usize| {
        let bytes = bytes.get(at..).and_then(<[u8]>::first_chunk);
        bytes.map_or(0, |bytes| i32::from_le_bytes(*bytes))
    };
    let offset = i32::try_from(offset).ok()?;
    let first = descriptors.partition_point(|descriptor| number(descriptor, 0) < offset);
    let descriptor = descriptors.get(first)?;
    u32::try_from(number(descriptor, 4)).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn takes_the_descriptor_at_or_behind() {
        let table: Vec<u8> = [(-1, 0), (10, 7), (20, 8), (i32::MAX, 0)]
            .iter()
            .flat_map(|(pc, scope): &(i32, i32)| [*pc, *scope, 0, 0])
            .flat_map(i32::to_le_bytes)
            .collect();
        let found = [0, 10, 11, 20, 21].map(|offset| scope_at(&table, offset));
        assert_eq!(found, [7, 7, 8, 8, 0].map(Some));
        assert_eq!(scope_at(&table[..33], 11), None);
        assert_eq!(scope_at(&[], 0), None);
    }
}
