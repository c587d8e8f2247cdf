//! One step, from a frame in the code cache to its caller.

use super::blob::{Blob, kind};
use super::interpreted::read;
use super::leaf::{Leaf, leaf};
use super::{CodeCache, HotspotError, Layout};
use crate::interpreter::{BlockMemory, Detail, runtime};
use crate::walk::UserMemory;

/// Maximum frame size: a method has at most 64 K locals and as many operands.
pub(super) const MAX_FRAME_BYTES: u64 = 1 << 20;

/// The registers of a frame.
#[cfg_attr(feature = "host", derive(bytemuck::Pod, bytemuck::Zeroable))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Walk {
    pub ip: u64,
    pub sp: u64,
    pub fp: u64,
    /// r13 of the innermost frame: the bytecode pointer, or the caller's stack pointer during a call.
    pub bcp: u64,
    /// rbx of the innermost frame: the `Method` that is being called.
    pub method: u64,
    /// rax of the innermost frame: the return address while calls move it.
    pub result: u64,
    /// Whether `ip` is an exact instruction pointer and not a return address.
    pub exact: u32,
    pub unused: u32,
}

/// A frame of code in the code cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CodeFrame {
    /// One of [`runtime`].
    pub runtime: u32,
    /// The `Method` of an interpreted frame, else the blob.
    pub function: u64,
    /// The bytecode index of an interpreted frame, else the offset in the blob's code.
    pub detail: Detail,
}

impl CodeFrame {
    #[inline(always)]
    pub(super) fn stub(blob: &Blob, pc: u64) -> Self {
        Self {
            runtime: runtime::HOTSPOT_STUB,
            function: blob.address,
            detail: Detail::new(0, pc.wrapping_sub(blob.code_begin) as u32),
        }
    }
}

/// The blob of a frame, and the position in it.
#[derive(Clone, Copy, Debug)]
pub struct BlobPosition {
    pub blob: Blob,
    pub form: Leaf,
    /// Whether the frame is being set up.
    pub is_prologue: bool,
}

/// Maximum number of registers that an intrinsic pushes.
const MAX_PUSHED_WORDS: u32 = 6;

/// The position in a prologue or epilogue of compiled code: no inlined function is running.
pub const EDGE: u32 = u32::MAX;

/// The size of a virtual thread's first frame, in versions that do not record its full size.
const ENTER_SPECIAL_BYTES: u64 = 16;

impl Walk {
    /// Returns the frame, whose code [`CodeCache::holds`], and sets the registers to those of its caller;
    /// `ip` becomes 0 at the first frame of the thread.
    ///
    /// It is split into parts because the kernel verifies functions one by one.
    #[inline(always)]
    pub fn step(
        &mut self,
        layout: &Layout,
        cache: &CodeCache,
        memory: &mut (impl BlockMemory + UserMemory),
    ) -> Result<CodeFrame, HotspotError> {
        if cache.interpreter.holds(self.ip) {
            return self.step_interpreted(layout, cache, memory);
        }
        let place = self.place(layout, cache, memory)?;
        if place.blob.is_compiled() {
            self.step_compiled(layout, cache, &place, memory)
        } else {
            self.step_stub(cache, &place, memory)
        }
    }

    /// First part, outside the interpreter.
    #[inline(always)]
    pub fn place(
        &self,
        layout: &Layout,
        cache: &CodeCache,
        memory: &mut impl BlockMemory,
    ) -> Result<BlobPosition, HotspotError> {
        let blob = Blob::find(layout, cache, self.ip, memory)?;
        let mut place = BlobPosition {
            blob,
            form: Leaf::Complete,
            is_prologue: false,
        };
        if self.exact != 0 {
            place.is_prologue = self.ip.wrapping_sub(blob.code_begin) < blob.prologue_bytes();
            place.form = leaf(self.ip, place.is_prologue, memory).ok_or(HotspotError::Memory)?;
        }
        Ok(place)
    }

    /// Second part, if the blob [is compiled](Blob::is_compiled).
    #[inline(always)]
    pub fn step_compiled(
        &mut self,
        layout: &Layout,
        cache: &CodeCache,
        place: &BlobPosition,
        memory: &mut (impl BlockMemory + UserMemory),
    ) -> Result<CodeFrame, HotspotError> {
        let blob = &place.blob;
        let mut member = |offset: u16| {
            let word = memory.word(blob.address.wrapping_add(offset.into()));
            word.ok_or(HotspotError::Memory)
        };
        let compile_id = member(layout.nmethod_compile_id)? as u32;
        let mut pc = self.ip;
        if self.exact == 0 && is_deoptimized(layout, blob, pc, &mut member)? {
            let slot = member(layout.nmethod_orig_pc_offset)? as u32;
            pc = read(memory, self.sp.wrapping_add(slot.into()))?;
        }
        let mut offset = pc.wrapping_sub(blob.code_begin);
        if pc < blob.code_begin || pc > blob.code_end {
            return Err(HotspotError::Frame);
        }
        if place.is_prologue || place.form != Leaf::Complete {
            offset = EDGE.into();
        }
        let found = CodeFrame {
            runtime: runtime::HOTSPOT_COMPILED,
            function: blob.address,
            detail: Detail::new(compile_id, offset as u32),
        };
        let is_native = blob.kind == kind::NATIVE_NMETHOD;
        if is_native && self.exact == 0 && blob.frame_bytes <= ENTER_SPECIAL_BYTES {
            self.ip = 0;
            return Ok(found);
        }
        if self.exact != 0 && place.form == Leaf::Complete {
            self.leave_body(cache, blob.frame_bytes, memory)?;
        } else {
            self.leave_frame(place.form, blob.frame_bytes, memory)?;
        }
        Ok(found)
    }

    /// Some intrinsics push registers while they run. Only code in the cache calls compiled code.
    #[inline(always)]
    fn leave_body(
        &mut self,
        cache: &CodeCache,
        bytes: u64,
        memory: &mut impl UserMemory,
    ) -> Result<(), HotspotError> {
        if bytes > MAX_FRAME_BYTES {
            return Err(HotspotError::Frame);
        }
        let mut cfa = self.sp.wrapping_add(bytes);
        for _ in 0..=MAX_PUSHED_WORDS {
            let ip = read(memory, cfa.wrapping_sub(8))?;
            if cache.holds(ip) {
                let fp = read(memory, cfa.wrapping_sub(16))?;
                return self.enter_caller(ip, cfa, fp);
            }
            cfa = cfa.wrapping_add(8);
        }
        Err(HotspotError::Frame)
    }

    #[inline(always)]
    pub(super) fn leave_frame(
        &mut self,
        form: Leaf,
        bytes: u64,
        memory: &mut impl UserMemory,
    ) -> Result<(), HotspotError> {
        if bytes > MAX_FRAME_BYTES {
            return Err(HotspotError::Frame);
        }
        let cfa = match form {
            Leaf::Frameless => self.sp.wrapping_add(8),
            Leaf::Pushed => self.sp.wrapping_add(16),
            Leaf::Unsaved | Leaf::Leaving | Leaf::Complete => self.sp.wrapping_add(bytes),
        };
        let ip = read(memory, cfa.wrapping_sub(8))?;
        let fp = match form {
            Leaf::Frameless | Leaf::Unsaved => self.fp,
            Leaf::Pushed | Leaf::Leaving | Leaf::Complete => read(memory, cfa.wrapping_sub(16))?,
        };
        self.enter_caller(ip, cfa, fp)
    }

    /// Unwinds by the pair of frame pointer and return address.
    #[inline(always)]
    pub(super) fn leave_pair(
        &mut self,
        pair: u64,
        memory: &mut impl UserMemory,
    ) -> Result<(), HotspotError> {
        if pair < self.sp || pair - self.sp > MAX_FRAME_BYTES || pair & 7 != 0 {
            return Err(HotspotError::Frame);
        }
        let ip = read(memory, pair.wrapping_add(8))?;
        let fp = read(memory, pair)?;
        self.enter_caller(ip, pair.wrapping_add(16), fp)
    }

    #[inline(always)]
    pub(super) fn enter_caller(&mut self, ip: u64, sp: u64, fp: u64) -> Result<(), HotspotError> {
        if sp <= self.sp && self.exact == 0 || sp < self.sp {
            return Err(HotspotError::NotAdvancing);
        }
        *self = Self {
            ip,
            sp,
            fp,
            ..Self::default()
        };
        Ok(())
    }

    /// Whether the address may be in this frame or the next one.
    #[inline(always)]
    pub(super) fn is_just_above(&self, address: u64) -> bool {
        address > self.sp && address - self.sp <= MAX_FRAME_BYTES && address & 7 == 0
    }
}

/// Whether the frame was deoptimized: the runtime replaced its return address.
#[inline(always)]
fn is_deoptimized(
    layout: &Layout,
    blob: &Blob,
    pc: u64,
    member: &mut impl FnMut(u16) -> Result<u64, HotspotError>,
) -> Result<bool, HotspotError> {
    let mut handler = |offset: u16| {
        let word = member(offset)?;
        if layout.code_address == super::code_address::OFFSET {
            return Ok(blob.address.wrapping_add(word & 0xffff_ffff));
        }
        Ok(word)
    };
    if handler(layout.nmethod_deopt_handler)? == pc {
        return Ok(true);
    }
    if layout.nmethod_deopt_mh_handler == 0 {
        return Ok(false);
    }
    Ok(handler(layout.nmethod_deopt_mh_handler)? == pc)
}
