//! BEAM, Erlang's virtual machine: the frames of code that its JIT compiler generated.
//!
//! Such code runs on the stack of an Erlang process. For C functions it switches to the stack of the scheduler's thread, which begins at
//! the registers of the scheduler.
//!
//! ```text
//! stack of the thread:      clone ... sched_thread_func │ process_main │ registers │ C function ...
//! stack of the process:     first function ... calling function │ running function
//! ```
//!
//! A word on the stack of a process is a tagged term, or a return address, whose lowest two bits are clear. So the first such word
//! above the stack pointer in generated code is the return address. After the first function the walk continues on the
//! stack of the thread, at the caller of `process_main`.
//!
//! Only x86-64.

use super::hotspot::AddressRange;
use super::thread_variable::ThreadVariable;
use super::{BlockMemory, Detail, HASH_MULTIPLIER};
use crate::walk::{Registers, UserMemory};

/// The programs' data on a process that runs BEAM.
#[cfg_attr(feature = "host", derive(bytemuck::Pod, bytemuck::Zeroable))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct BeamProcess {
    /// Contains all generated code.
    pub code: AddressRange,
    /// Code that functions share.
    pub shared: AddressRange,
    /// `process_main`, which starts and ends functions of processes.
    pub main: AddressRange,
    /// The return address of the caller of `process_main`.
    pub main_return: u64,
    /// To which the first function of a process returns.
    pub first_return: u64,
    /// The tables of loaded modules: one for each code index, and the current index.
    pub modules: u64,
    /// The key of a thread's scheduler.
    pub scheduler_key: u64,
    pub scheduler: ThreadVariable,
    /// Size of the frame of `process_main`, up to the alignment of its start.
    pub main_frame_bytes: u32,
    /// From the start of the scheduler's registers to the address in rbx.
    pub registers_bias: u32,
    /// The process, in the scheduler.
    pub scheduler_process: u32,
}

/// Registers that generated code reserves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReservedRegisters {
    /// r13.
    pub process: u64,
    /// rbx.
    pub scheduler_registers: u64,
}

/// The state of the walk along a process.
#[cfg_attr(feature = "host", derive(bytemuck::Pod, bytemuck::Zeroable))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Walk {
    /// The next word on the stack of the process; 0 if there is none.
    pub sp: u64,
    /// The start of the scheduler's registers.
    pub scheduler_registers: u64,
    /// The table of modules, see [`generation`].
    pub generation: u32,
    /// How many more words the current frame may have.
    pub words_left: u32,
    /// Whether shared code is innermost: its return address may have any alignment.
    pub is_shared_code: u32,
    pub unused: u32,
}

/// Why a stack ends early; the position of a frame without a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum BeamError {
    /// A member of the runtime could not be read.
    Memory = 1,
    /// The stack could not be read.
    Stack = 4,
    /// No return address on the stack.
    Frame = 6,
}

/// What the walk found on the stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StackScan {
    /// The return address of a function, or inside of it.
    Caller(u64),
    /// The first function has no caller.
    First,
    /// Nothing yet.
    More,
}

/// Words per call of [`Walk::caller`].
pub const WORDS_PER_CALL: u32 = 16;
/// Functions have up to 1024 variables on the stack.
const MAX_FRAME_WORDS: u32 = 1100;
const MAX_FRAME_BYTES: u64 = MAX_FRAME_WORDS as u64 * 8;

/// Return addresses and words of the stack that contain pointers have these bits clear.
const TAG: u64 = 3;

/// The table of modules: three code indices with address, count, size and last result, then the staged and the current index.
const MODULES_BYTES: u32 = 104;
const CODE_INDICES: u32 = 3;
const WORDS_OF_INDEX: u32 = 4;

/// How generated code returns from the thread's stack to that of the process, after the call of a C function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Restore {
    /// From rbp.
    FramePointer,
    /// From this member of the process.
    Process(u32),
    /// Not within the next instructions: it runs for no process.
    None,
}

/// Bytes of code that [`restore`] examines.
const RESTORE_BYTES: u32 = 24;
/// The first of them at which the restoring instruction may begin.
const RESTORE_PLACES: u32 = RESTORE_BYTES - 8;
/// mov rsp, rbp
const MOV_SP_FP: u64 = 0xec_89_48;
/// mov rsp, [r13 + disp8]
const MOV_SP_PROCESS: u64 = 0x65_8b_49;
/// mov rsp, [r13 + disp32]
const MOV_SP_PROCESS_FAR: u64 = 0xa5_8b_49;
const OPCODE: u64 = 0xff_ff_ff;

/// Finds the instruction at the return address of a C function that restores the stack pointer.
#[inline(always)]
pub fn restore(code: u64, memory: &mut impl BlockMemory) -> Option<Restore> {
    if !memory.load_block(code, RESTORE_BYTES) {
        return None;
    }
    let mut at = 0;
    while at < RESTORE_PLACES {
        let low = memory.block_word(at >> 3);
        let high = memory.block_word((at >> 3) + 1);
        let shift = (at & 7) << 3;
        // Shifts by 64 are not defined.
        let bytes = low >> shift | (high << 1) << (63 - shift);
        match bytes & OPCODE {
            MOV_SP_FP => return Some(Restore::FramePointer),
            MOV_SP_PROCESS => return Some(Restore::Process((bytes >> 24) as u32 & 0xff)),
            MOV_SP_PROCESS_FAR => return Some(Restore::Process((bytes >> 24) as u32)),
            _ => at += 1,
        }
    }
    Some(Restore::None)
}

/// A value that changes with the loaded modules. `words` are those of the table.
#[inline(always)]
pub fn generation(mut word: impl FnMut(u32) -> u64) -> u32 {
    let mut hash = word(CODE_INDICES * WORDS_OF_INDEX);
    let mut index = 0;
    while index < CODE_INDICES {
        let at = index * WORDS_OF_INDEX;
        hash = (hash ^ word(at)).wrapping_mul(HASH_MULTIPLIER);
        hash = (hash ^ word(at + 1)).wrapping_mul(HASH_MULTIPLIER);
        index += 1;
    }
    (hash >> 32) as u32
}

impl BeamProcess {
    #[inline(always)]
    pub fn holds(&self, address: u64) -> bool {
        self.code.holds(address)
    }

    /// Begins the walk at a frame of generated code, innermost or called by the thread's stack.
    #[inline(always)]
    pub fn begin(
        &self,
        registers: &Registers,
        is_exact: bool,
        reserved: ReservedRegisters,
        thread_pointer: u64,
        memory: &mut impl BlockMemory,
    ) -> Result<Walk, BeamError> {
        if !memory.load_block(self.modules, MODULES_BYTES) {
            return Err(BeamError::Memory);
        }
        let mut walk = Walk {
            sp: registers.sp,
            scheduler_registers: registers.sp,
            generation: generation(|index| memory.block_word(index)),
            words_left: MAX_FRAME_WORDS,
            is_shared_code: 0,
            unused: 0,
        };
        let bias = u64::from(self.registers_bias);
        if is_exact {
            walk.scheduler_registers = reserved.scheduler_registers.wrapping_sub(bias);
            if registers.sp != walk.scheduler_registers {
                walk.is_shared_code = u32::from(self.shared.holds(registers.ip));
                return Ok(walk);
            }
        }
        if self.main.holds(registers.ip) {
            walk.sp = 0;
            return Ok(walk);
        }
        walk.sp = match restore(registers.ip, memory).ok_or(BeamError::Memory)? {
            Restore::FramePointer => registers.fp,
            Restore::None => 0,
            Restore::Process(member) => {
                let mut process = reserved.process;
                if !is_exact {
                    let scheduler =
                        self.scheduler
                            .address(self.scheduler_key, thread_pointer, memory);
                    let place = scheduler
                        .ok_or(BeamError::Memory)?
                        .wrapping_add(self.scheduler_process.into());
                    process = memory.word(place).ok_or(BeamError::Memory)?;
                }
                let place = process.wrapping_add(member.into());
                memory.word(place).ok_or(BeamError::Memory)?
            }
        };
        Ok(walk)
    }

    /// The registers of the caller of `process_main`.
    #[inline(always)]
    pub fn leave(&self, walk: &Walk, memory: &mut impl UserMemory) -> Result<Registers, BeamError> {
        let mut place = walk
            .scheduler_registers
            .wrapping_add(self.main_frame_bytes.into());
        // Its frame begins at a cache line, and calls align the stack pointer to 16 bytes.
        for _ in 0..4 {
            place = place.wrapping_add(8);
            if memory.user_word(place).ok_or(BeamError::Stack)? == self.main_return {
                return Ok(Registers {
                    ip: self.main_return,
                    sp: place.wrapping_add(8),
                    fp: 0,
                    link: 0,
                });
            }
            place = place.wrapping_add(8);
        }
        Err(BeamError::Frame)
    }
}

impl Walk {
    /// Looks at the next words of the stack.
    #[inline(always)]
    pub fn caller(
        &mut self,
        process: &BeamProcess,
        memory: &mut (impl UserMemory + BlockMemory),
    ) -> Result<StackScan, BeamError> {
        if self.sp == 0 {
            return Ok(StackScan::First);
        }
        let mut seen = 0;
        while seen < WORDS_PER_CALL {
            let word = memory.user_word(self.sp).ok_or(BeamError::Stack)?;
            self.sp = self.sp.wrapping_add(8);
            seen += 1;
            // With frame pointers, the stack also has those of callers.
            let is_of_stack = word.wrapping_sub(self.sp) < MAX_FRAME_BYTES;
            if is_of_stack || !process.holds(word) {
                continue;
            }
            if word & TAG != 0 && !self.is_call_of_shared_code(process, word, memory) {
                continue;
            }
            self.is_shared_code = 0;
            self.words_left = MAX_FRAME_WORDS;
            if word == process.first_return {
                return Ok(StackScan::First);
            }
            return Ok(StackScan::Caller(word));
        }
        self.words_left = self.words_left.saturating_sub(WORDS_PER_CALL);
        if self.words_left == 0 {
            return Err(BeamError::Frame);
        }
        Ok(StackScan::More)
    }

    /// Whether the instruction before the address calls shared code.
    #[inline(always)]
    fn is_call_of_shared_code(
        &self,
        process: &BeamProcess,
        address: u64,
        memory: &mut impl BlockMemory,
    ) -> bool {
        if self.is_shared_code == 0 {
            return false;
        }
        let Some(before) = memory.word(address.wrapping_sub(8)) else {
            return false;
        };
        let target = address.wrapping_add_signed(i64::from((before >> 32) as i32));
        before >> 24 & 0xff == CALL && process.shared.holds(target)
    }

    #[inline(always)]
    pub fn detail(&self) -> Detail {
        Detail::new(self.generation, 0)
    }
}

/// call rel32
const CALL: u64 = 0xe8;

#[cfg(test)]
mod tests;
