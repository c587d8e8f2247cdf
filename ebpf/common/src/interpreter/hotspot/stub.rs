//! Frames of the runtime's own code. Each kind saves the caller's registers differently.

use super::blob::kind;
use super::interpreted::read;
use super::leaf::Leaf;
use super::step::{BlobPosition, CodeFrame, Walk};
use super::{CodeCache, HotspotError};
use crate::walk::UserMemory;

/// A stub has at most this below its frame pointer, and an interpreted frame at least this.
const NEAR_BYTES: u64 = 80;

/// Size of 255 arguments and a return address.
const MAX_ARGUMENT_BYTES: u64 = 2048;

impl Walk {
    /// Second part, if the blob is not compiled code.
    #[inline(always)]
    pub fn step_stub(
        &mut self,
        cache: &CodeCache,
        place: &BlobPosition,
        memory: &mut impl UserMemory,
    ) -> Result<CodeFrame, HotspotError> {
        let (blob, form) = (&place.blob, place.form);
        let found = CodeFrame::stub(blob, self.ip);
        if self.exact == 0 && cache.continuation.holds(self.ip) {
            // The other frames of the virtual thread are on the heap.
            self.ip = 0;
            return Ok(found);
        }
        if self.exact == 0 {
            if blob.frame_bytes > 0 {
                self.leave_frame(Leaf::Complete, blob.frame_bytes, memory)?;
            } else {
                self.leave_pair(self.fp, memory)?;
            }
            return Ok(found);
        }
        if blob.kind == kind::ADAPTER {
            self.leave_adapter(cache, memory)?;
            return Ok(found);
        }
        let is_framed = blob.frame_bytes > 0;
        if place.is_prologue || form == Leaf::Pushed || form == Leaf::Frameless {
            self.leave_frame(form, blob.frame_bytes, memory)?;
            return Ok(found);
        }
        let pair = if is_framed {
            self.sp.wrapping_add(blob.frame_bytes).wrapping_sub(16)
        } else {
            self.fp
        };
        let is_near = is_framed || self.fp.wrapping_sub(self.sp) < NEAR_BYTES;
        if is_near && blob.kind != kind::FRAMELESS {
            let above = read(memory, pair.wrapping_add(8))?;
            if cache.holds(above) {
                self.leave_pair(pair, memory)?;
                return Ok(found);
            }
        }
        let top = read(memory, self.sp)?;
        if cache.holds(top) {
            self.leave_frame(Leaf::Frameless, 0, memory)?;
        } else if blob.kind == kind::FRAMELESS {
            self.leave_moved(cache, self.sp)?;
        } else {
            self.leave_pair(pair, memory)?;
        }
        Ok(found)
    }

    /// The adapter moves the return address to rax and the stack pointer to r13, makes room, and pushes
    /// the return address again.
    #[inline(always)]
    fn leave_adapter(
        &mut self,
        cache: &CodeCache,
        memory: &mut impl UserMemory,
    ) -> Result<(), HotspotError> {
        let top = read(memory, self.sp)?;
        let is_on_top = cache.holds(top);
        let behind = self.sp.wrapping_add(8);
        if is_on_top && top != self.result {
            return self.enter_caller(top, behind, self.fp);
        }
        let has_moved = self.is_just_above(self.bcp) && self.bcp - self.sp <= MAX_ARGUMENT_BYTES;
        let sp = if has_moved {
            self.bcp
        } else if is_on_top {
            behind
        } else {
            self.sp
        };
        self.leave_moved(cache, sp)
    }

    /// The return address is not on the stack while the adapter makes room below it.
    #[inline(always)]
    fn leave_moved(&mut self, cache: &CodeCache, sp: u64) -> Result<(), HotspotError> {
        if !cache.holds(self.result) {
            return Err(HotspotError::Frame);
        }
        self.enter_caller(self.result, sp, self.fp)
    }
}
