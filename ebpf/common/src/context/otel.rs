//! Trace and span of a thread in OpenTelemetry's thread context (OTEP 4947): the thread-local variable
//! `otel_thread_ctx_v1` points to a record, which its thread alone changes.

use super::ContextMemory;

pub const SYMBOL: &str = "otel_thread_ctx_v1";

/// Offsets in the record.
const SPAN_ID: u64 = 16;
const VALID: u64 = 24;

/// Trace and span of a record.
#[inline(always)]
pub fn link(record: u64, memory: &mut impl ContextMemory) -> Option<([u64; 2], u64)> {
    // The other bytes of the word are flags and a size.
    if memory.word(record.wrapping_add(VALID))? & 0xff != 1 {
        return None;
    }
    let trace_id = [memory.word(record)?, memory.word(record.wrapping_add(8))?];
    let span_id = memory.word(record.wrapping_add(SPAN_ID))?;
    (trace_id != [0; 2] && span_id != 0).then_some((trace_id, span_id))
}
