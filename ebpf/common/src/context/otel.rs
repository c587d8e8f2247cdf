//! Trace, span and attributes of a thread in OpenTelemetry's thread context (OTEP 4947): the thread-local variable
//! `otel_thread_ctx_v1` points to a record, which its thread alone changes.

use super::ContextMemory;

pub const SYMBOL: &str = "otel_thread_ctx_v1";

/// A record with longer attributes exceeds the size that the OTEP recommends.
pub const MAX_ATTRIBUTE_BYTES: u32 = 612;

/// Offsets in the record.
const SPAN_ID: u64 = 16;
const VALID: u64 = 24;
const ATTRIBUTES: u64 = 28;

/// A valid record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Record {
    /// 0 outside of traces.
    pub trace_id: [u64; 2],
    pub span_id: u64,
    /// The address and the size of its attributes.
    pub attributes: u64,
    pub attribute_bytes: u64,
}

impl Record {
    #[inline(always)]
    pub fn read(address: u64, memory: &mut impl ContextMemory) -> Option<Self> {
        // A flag, flags of the trace, and the size.
        let state = memory.word(address.wrapping_add(VALID))?;
        if state & 0xff != 1 {
            return None;
        }
        Some(Self {
            trace_id: [memory.word(address)?, memory.word(address.wrapping_add(8))?],
            span_id: memory.word(address.wrapping_add(SPAN_ID))?,
            attributes: address.wrapping_add(ATTRIBUTES),
            attribute_bytes: state >> 16 & 0xffff,
        })
    }

    pub fn has_link(&self) -> bool {
        self.trace_id != [0; 2] && self.span_id != 0
    }
}
