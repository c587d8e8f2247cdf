//! CPython: from a thread's state along its frames.
//!
//! ```text
//! runtime ─► interpreters ─► threads ─► current frame ─► its caller ─► ...
//! ```
//!
//! One native frame of the loop runs many frames: since 3.11 a call from Python to Python does not nest
//! natively. Its last frame is marked by a shim frame on the C stack in 3.12 and later, and by a
//! `_PyCFrame` there in 3.11. Older versions run one frame in each native frame.

use super::{BlockMemory, Detail, NativeFrame, Step, unreadable};

/// Offsets of members, in bytes, for the version of the file.
#[cfg_attr(feature = "host", derive(bytemuck::Pod, bytemuck::Zeroable))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Layout {
    /// One of [`boundary`].
    pub boundary: u32,
    pub runtime_interpreters: u32,
    pub interpreter_next: u32,
    pub interpreter_threads: u32,
    pub thread_next: u32,
    pub thread_interpreter: u32,
    /// `thread_id`: what `pthread_self` returned.
    pub thread_id: u32,
    /// `current_frame`, `cframe` or `frame`.
    pub thread_frame: u32,
    /// Members of `_PyCFrame`; [`NO_CFRAME`] if there is none.
    pub cframe_frame: u32,
    pub cframe_previous: u32,
    pub frame_bytes: u32,
    pub frame_previous: u32,
    pub frame_code: u32,
    pub frame_instruction: u32,
    /// `owner` or `is_entry`, one byte.
    pub frame_owner: u32,
    /// Frames with at least this owner are not functions.
    pub shim_owner: u32,
    /// The part of a code object that distinguishes it from earlier ones at its address.
    pub code_identity: u32,
    /// Two 32-bit numbers in that part.
    pub identity_first: u32,
    pub identity_second: u32,
    /// The function's name and the file's in that part, and the text in a string, in versions where other code may have
    /// the same numbers; else 0.
    pub identity_name: u32,
    pub identity_file: u32,
    pub text_data: u32,
    /// Offset of the instructions in a code object; 0 if frames store an instruction index.
    pub code_instructions: u32,
    /// Shift that converts a frame's position to an instruction index.
    pub position_shift: u32,
}

/// How the frames of one native frame end.
pub mod boundary {
    /// By a frame on the C stack.
    pub const SHIM: u32 = 0;
    /// By the flag `is_entry`, and a `_PyCFrame` on the C stack.
    pub const CFRAME: u32 = 1;
    /// Each native frame runs a single one.
    pub const SINGLE: u32 = 2;
}

/// The state of the walk.
#[cfg_attr(feature = "host", derive(bytemuck::Pod, bytemuck::Zeroable))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Walk {
    /// The next frame; 0 after the last one.
    pub frame: u64,
    /// The `_PyCFrame` of the next native frame, in versions that have it.
    pub cframe: u64,
    /// Whether the chain of frames could not be read to its end.
    pub is_lost: u64,
}

/// The tag of a reference in 3.14.
const TAG: u64 = 1;

/// Bytes of [`Layout::code_identity`].
pub const IDENTITY_BYTES: u32 = 80;

/// A string of versions whose names count.
pub mod text {
    pub const START: u64 = 16;
    pub const BYTES: u32 = 16;
    pub const LENGTH: u32 = 0;
    pub const HASH: u32 = 1;
    /// Nothing needed it yet.
    pub const NO_HASH: u64 = u64::MAX;

    /// The address of the last word of the text.
    #[inline(always)]
    pub fn tail(address: u64, data: u32, length: u64) -> u64 {
        let end = address.wrapping_add(data.into()).wrapping_add(length);
        end.wrapping_sub(8)
    }
}

/// An unreadable frame.
pub fn unreadable(reason: u32) -> Step {
    Step::Last(0, Detail::new(0, reason))
}

impl Walk {
    /// The walk from the thread's current frame.
    #[inline(always)]
    pub fn begin(layout: &Layout, thread: u64, memory: &mut impl BlockMemory) -> Option<Self> {
        let top = memory.word(thread.wrapping_add(layout.thread_frame.into()))?;
        let mut walk = Self {
            frame: top,
            cframe: top,
            is_lost: 0,
        };
        if layout.cframe_frame != NO_CFRAME {
            walk.frame = memory.word(top.wrapping_add(layout.cframe_frame.into()))?;
        }
        Some(walk)
    }

    /// A thread with unreadable frames.
    pub fn lost() -> Self {
        Self {
            is_lost: 1,
            ..Self::default()
        }
    }

    /// To be called before the first frame of a native frame.
    #[inline(always)]
    pub fn enter(
        &mut self,
        layout: &Layout,
        native: &NativeFrame,
        memory: &mut impl BlockMemory,
    ) -> Result<(), Step> {
        if self.is_lost != 0 {
            return Err(unreadable(unreadable::MEMORY));
        }
        if layout.boundary != boundary::CFRAME {
            return Ok(());
        }
        if self.cframe == 0 || self.cframe >= native.cfa {
            return Err(Step::End);
        }
        match memory.word(self.cframe.wrapping_add(layout.cframe_frame.into())) {
            Some(frame) => {
                self.frame = frame;
                Ok(())
            }
            None => Err(self.lose()),
        }
    }

    /// The next frame of the native frame.
    #[inline(always)]
    pub fn step(
        &mut self,
        layout: &Layout,
        native: &NativeFrame,
        memory: &mut impl BlockMemory,
    ) -> Step {
        if self.frame == 0 {
            return Step::End;
        }
        if !memory.load_block(self.frame, layout.frame_bytes) {
            return self.lose();
        }
        let previous = memory.block_word(layout.frame_previous >> 3);
        let code = memory.block_word(layout.frame_code >> 3) & !TAG;
        let instruction = memory.block_word(layout.frame_instruction >> 3);
        let owner = memory.block_word(layout.frame_owner >> 3) >> ((layout.frame_owner & 7) << 3);
        let owner = owner & 0xff;
        if layout.boundary == boundary::SHIM && owner >= u64::from(layout.shim_owner) {
            if self.frame >= native.cfa {
                return Step::NotEntered;
            }
            let is_own = self.frame >= native.sp;
            self.frame = previous;
            return if is_own { Step::End } else { Step::Skip };
        }
        if !memory.load_block(
            code.wrapping_add(layout.code_identity.into()),
            IDENTITY_BYTES,
        ) {
            return self.lose();
        }
        let half = |at: u32| (memory.block_word(at >> 3) >> ((at & 4) << 3)) as u32;
        let mut identity = Identity {
            first: half(layout.identity_first),
            second: half(layout.identity_second),
            ..Identity::default()
        };
        if layout.text_data != 0 {
            let name = memory.block_word(layout.identity_name >> 3);
            let file = memory.block_word(layout.identity_file >> 3);
            identity.name = text_identity(name, memory);
            identity.file = text_identity(file, memory);
            if identity.file[1] == text::NO_HASH {
                let tail = text::tail(file, layout.text_data, identity.file[0]);
                identity.file_tail = memory.word(tail).unwrap_or(0);
            }
        }
        let detail = Detail::new(identity.generation(), layout.position(code, instruction));
        self.frame = previous;
        match layout.boundary {
            boundary::CFRAME if owner == 1 => {
                self.leave_cframe(layout, native, code, detail, memory)
            }
            boundary::SINGLE => Step::Last(code, detail),
            _ => Step::Frame(code, detail),
        }
    }

    /// The frame entered from C is the last one of its `_PyCFrame`.
    #[inline(always)]
    fn leave_cframe(
        &mut self,
        layout: &Layout,
        native: &NativeFrame,
        code: u64,
        detail: Detail,
        memory: &mut impl BlockMemory,
    ) -> Step {
        let is_own = native.holds(self.cframe);
        match memory.word(self.cframe.wrapping_add(layout.cframe_previous.into())) {
            Some(previous) => self.cframe = previous,
            None => self.is_lost = 1,
        }
        if is_own {
            return Step::Last(code, detail);
        }
        // It belongs to a native frame that the walk did not see.
        match memory.word(self.cframe.wrapping_add(layout.cframe_frame.into())) {
            Some(frame) => self.frame = frame,
            None => self.is_lost = 1,
        }
        Step::Frame(code, detail)
    }

    #[inline(always)]
    fn lose(&mut self) -> Step {
        self.is_lost = 1;
        self.frame = 0;
        unreadable(unreadable::MEMORY)
    }
}

/// [`Layout::cframe_frame`] of versions without a `_PyCFrame`.
pub const NO_CFRAME: u32 = u32::MAX;

/// What distinguishes a code object from earlier ones at its address.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Identity {
    pub first: u32,
    pub second: u32,
    /// The length and the hash of the function's name and the file's; 0 if the numbers suffice.
    pub name: [u64; 2],
    pub file: [u64; 2],
    /// The end of the file's name if it has no hash, as that of code that a program compiles.
    pub file_tail: u64,
}

impl Identity {
    #[inline(always)]
    pub fn generation(&self) -> u32 {
        super::generation(
            u64::from(self.first) << 32 | u64::from(self.second),
            [
                self.name[0],
                self.name[1],
                self.file[0],
                self.file[1],
                self.file_tail,
            ],
        )
    }
}

/// The length and the hash of a string; 0 if it cannot be read.
#[inline(always)]
fn text_identity(address: u64, memory: &mut impl BlockMemory) -> [u64; 2] {
    if !memory.load_block(address.wrapping_add(text::START), text::BYTES) {
        return [0; 2];
    }
    [
        memory.block_word(text::LENGTH),
        memory.block_word(text::HASH),
    ]
}

impl Layout {
    /// The index of an instruction.
    #[inline(always)]
    fn position(&self, code: u64, instruction: u64) -> u32 {
        if self.code_instructions == 0 {
            return instruction as u32 >> self.position_shift;
        }
        let begin = code.wrapping_add(self.code_instructions.into());
        (instruction.wrapping_sub(begin) as i64 >> self.position_shift) as u32
    }
}

#[cfg(test)]
mod tests;
