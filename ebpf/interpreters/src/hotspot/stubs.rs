//! Stubs: runtime code outside of methods.

use profcol_ebpf_common::interpreter::hotspot::{AddressRange, code_address};

use super::layout::Layout;
use super::tables::string;
use crate::FunctionError;
use crate::memory::Memory;

/// The name prefix of blobs with many stubs.
const SHARED: &str = "StubRoutines";

/// The code of a blob.
pub fn code(
    layout: &Layout,
    memory: &impl Memory,
    blob: u64,
) -> Result<AddressRange, FunctionError> {
    let common = &layout.common;
    let address = |offset: u16| {
        let word = memory.word(blob.wrapping_add(offset.into()))?;
        Ok::<_, FunctionError>(if common.code_address == code_address::OFFSET {
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

/// The stubs of a blob.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stubs {
    blob: String,
    /// Sorted code offsets, each with the name of the stub that begins there.
    starts: Vec<(u32, String)>,
}

impl Stubs {
    pub fn read(
        layout: &Layout,
        memory: &impl Memory,
        bias: u64,
        blob: u64,
    ) -> Result<Self, FunctionError> {
        let name = memory.word(blob.wrapping_add(layout.common.blob_name.into()))?;
        let mut stubs = Self {
            blob: string(memory, name)?,
            starts: Vec::new(),
        };
        if !stubs.blob.starts_with(SHARED) {
            return Ok(stubs);
        }
        let code = code(layout, memory, blob)?;
        for (stub, address) in &layout.stubs {
            let start = memory.word(address.wrapping_add(bias))?;
            if code.holds(start) {
                let offset = start.wrapping_sub(code.start) as u32;
                stubs.starts.push((offset, format!("StubRoutines::{stub}")));
            }
        }
        stubs.starts.sort_unstable();
        Ok(stubs)
    }

    /// The name of the stub at a code offset, or that of the blob if unknown.
    pub fn name(&self, offset: u32) -> &str {
        let after = self.starts.partition_point(|(start, _)| *start <= offset);
        let stub = after.checked_sub(1).and_then(|at| self.starts.get(at));
        stub.map_or(&self.blob, |(_, name)| name)
    }

    pub fn bytes(&self) -> usize {
        let names = self.starts.iter().map(|(_, name)| name.len());
        self.blob.len() + size_of_val(self.starts.as_slice()) + names.sum::<usize>()
    }
}
