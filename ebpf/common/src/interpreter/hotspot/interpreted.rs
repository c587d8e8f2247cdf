//! Frames of the template interpreter.
//!
//! ```text
//! fp + 8   return address
//! fp       the caller's frame pointer
//! fp - 8   the caller's stack pointer, before the interpreter's entry changed it
//! fp - 16  ...
//! fp - 24  Method
//! fp - 64  bytecode pointer; in r13 while the interpreter runs (JDK 8: fp - 56)
//! ```

use super::step::{CodeFrame, MAX_FRAME_BYTES, Walk};
use super::{Blob, CodeCache, HotspotError, Layout, NO_BCI};
use crate::interpreter::{BlockMemory, Detail, runtime};
use crate::walk::UserMemory;

const SENDER_SP: u64 = 8;
const METHOD: u64 = 24;

/// The last slot that each frame has, below its bytecode pointer.
const LAST_SLOT_BYTES: u64 = 8;

impl Walk {
    /// [`step`](Self::step) for interpreted frames.
    #[inline(always)]
    pub fn step_interpreted(
        &mut self,
        layout: &Layout,
        cache: &CodeCache,
        memory: &mut (impl BlockMemory + UserMemory),
    ) -> Result<CodeFrame, HotspotError> {
        // A frame that is still being set up lacks slots.
        let fixed_bytes = u64::from(layout.frame_bcp) + LAST_SLOT_BYTES;
        if self.exact != 0 && self.fp.wrapping_sub(self.sp) < fixed_bytes {
            return self.leave_entry(layout, memory);
        }
        let is_entering = self.exact != 0 && self.is_just_above(self.bcp);
        if is_entering && let Some(found) = self.leave_call(layout, cache, memory)? {
            return Ok(found);
        }
        if !self.is_just_above(self.fp) {
            return self.leave_return(layout, cache, memory);
        }
        let fp = self.fp;
        let word = |memory: &mut _, at: u64| read(memory, at);
        let bcp = word(memory, fp.wrapping_sub(layout.frame_bcp.into()))?;
        let method = word(memory, fp.wrapping_sub(METHOD))?;
        let Some(function) = function(layout, method, memory) else {
            return self.leave_return(layout, cache, memory);
        };
        let mut bci = function.bci(bcp);
        if self.exact != 0 && function.bci(self.bcp) != NO_BCI {
            bci = function.bci(self.bcp);
        }
        let sender_sp = word(memory, fp.wrapping_sub(SENDER_SP))?;
        let sp = if sender_sp > fp && sender_sp - fp <= MAX_FRAME_BYTES {
            sender_sp
        } else {
            fp.wrapping_add(16)
        };
        let ip = word(memory, fp.wrapping_add(8))?;
        let caller_fp = word(memory, fp)?;
        self.enter_caller(ip, sp, caller_fp)?;
        Ok(function.found(bci))
    }

    /// The frame is being set up: its frame pointer is already set.
    #[inline(always)]
    fn leave_entry(
        &mut self,
        layout: &Layout,
        memory: &mut (impl BlockMemory + UserMemory),
    ) -> Result<CodeFrame, HotspotError> {
        let function = function(layout, self.method, memory).ok_or(HotspotError::Frame)?;
        let ip = read(memory, self.fp.wrapping_add(8))?;
        let fp = read(memory, self.fp)?;
        let mut sp = read(memory, self.fp.wrapping_sub(SENDER_SP))?;
        if sp <= self.fp || sp - self.fp > MAX_FRAME_BYTES {
            sp = self.fp.wrapping_add(16);
        }
        self.enter_caller(ip, sp, fp)?;
        Ok(function.found(0))
    }

    /// The entry has not begun the frame yet: r13 has the caller's stack pointer, and rbx the method.
    #[inline(always)]
    fn leave_call(
        &mut self,
        layout: &Layout,
        cache: &CodeCache,
        memory: &mut (impl BlockMemory + UserMemory),
    ) -> Result<Option<CodeFrame>, HotspotError> {
        let Some(function) = function(layout, self.method, memory) else {
            return Ok(None);
        };
        let (sender_sp, fp) = (self.bcp, self.fp);
        let mut ip = read(memory, self.sp)?;
        if ip == fp {
            ip = read(memory, self.sp.wrapping_add(8))?;
        }
        if !cache.holds(ip) {
            // It was popped off the stack, to make room for locals below it.
            ip = self.result;
        }
        if !cache.holds(ip) {
            return Ok(None);
        }
        self.enter_caller(ip, sender_sp, fp)?;
        Ok(Some(function.found(0)))
    }

    /// The frame was torn down: the return address is on top of the stack, or already in r13.
    #[inline(always)]
    fn leave_return(
        &mut self,
        layout: &Layout,
        cache: &CodeCache,
        memory: &mut (impl BlockMemory + UserMemory),
    ) -> Result<CodeFrame, HotspotError> {
        if self.exact == 0 {
            return Err(HotspotError::Frame);
        }
        let on_stack = read(memory, self.sp)?;
        let (ip, sp) = if cache.holds(on_stack) {
            (on_stack, self.sp.wrapping_add(8))
        } else {
            (self.bcp, self.sp)
        };
        if !cache.holds(ip) {
            return Err(HotspotError::Frame);
        }
        // rbx has the caller's stack pointer.
        let sp = if self.is_just_above(self.method) {
            self.method
        } else {
            sp
        };
        let blob = Blob::find(layout, cache, self.ip, memory)?;
        let found = CodeFrame::stub(&blob, self.ip);
        self.enter_caller(ip, sp, self.fp)?;
        Ok(found)
    }
}

/// An interpreted method.
struct Function {
    method: u64,
    const_method: u64,
    bytecodes: u64,
    code_size: u64,
}

#[inline(always)]
fn function(layout: &Layout, method: u64, memory: &mut impl BlockMemory) -> Option<Function> {
    if method == 0 || method & 7 != 0 {
        return None;
    }
    let const_method = memory.word(method.wrapping_add(layout.method_const_method.into()))?;
    if const_method == 0 || const_method & 7 != 0 {
        return None;
    }
    let code_size = memory.word(const_method.wrapping_add(layout.const_method_code_size.into()))?;
    Some(Function {
        method,
        const_method,
        bytecodes: const_method.wrapping_add(layout.const_method_bytes.into()),
        code_size: code_size & 0xffff,
    })
}

impl Function {
    #[inline(always)]
    fn bci(&self, bcp: u64) -> u32 {
        let bci = bcp.wrapping_sub(self.bytecodes);
        if bci < self.code_size {
            bci as u32
        } else {
            NO_BCI
        }
    }

    #[inline(always)]
    fn found(&self, bci: u32) -> CodeFrame {
        CodeFrame {
            runtime: runtime::HOTSPOT_INTERPRETED,
            function: self.method,
            detail: Detail::new(generation(self.const_method), bci),
        }
    }
}

/// Distinguishes a method from earlier ones at the same address, and from its own version before a
/// redefinition.
#[inline(always)]
pub fn generation(const_method: u64) -> u32 {
    (const_method >> 3) as u32
}

#[inline(always)]
pub(super) fn read(memory: &mut impl UserMemory, address: u64) -> Result<u64, HotspotError> {
    memory.user_word(address).ok_or(HotspotError::Stack)
}
