//! The innermost frame of compiled code: the frame is being set up or was already torn down.

use crate::interpreter::BlockMemory;

/// The state of a function's frame at an instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leaf {
    /// The return address is at the stack pointer.
    Frameless,
    /// The caller's frame pointer is on top of the stack, the return address above it.
    Pushed,
    /// Complete except for the caller's frame pointer, which is still in the register.
    Unsaved,
    /// Complete, and about to be torn down.
    Leaving,
    Complete,
}

/// Bytes of code to inspect before the instruction, and the size of the whole block.
const BEFORE: u32 = 32;
const BYTES: u32 = 64;

const PUSH_FP: u64 = 0x55;
const POP_FP: u64 = 0x5d;
const RET: u64 = 0xc3;

/// Inspects the code around an instruction; `is_prologue` if the frame may not be complete yet.
#[inline(always)]
pub fn leaf(pc: u64, is_prologue: bool, memory: &mut impl BlockMemory) -> Option<Leaf> {
    if !memory.load_block(pc.wrapping_sub(BEFORE.into()), BYTES) {
        return None;
    }
    let code = Code(memory);
    let (last, next) = (code.eight(BEFORE - 8), code.eight(BEFORE));
    if next & 0xff == PUSH_FP || code.is_epilogue(BEFORE) || is_safe_fetch(next) {
        return Some(Leaf::Frameless);
    }
    if next & 0xff == POP_FP && code.is_epilogue(BEFORE + 1) {
        return Some(Leaf::Pushed);
    }
    if last >> 56 == PUSH_FP && (is_prologue || is_move_to_fp(next)) {
        return Some(Leaf::Pushed);
    }
    if !is_prologue {
        return Some(if is_leaving(next) {
            Leaf::Leaving
        } else {
            Leaf::Complete
        });
    }
    if last >> 32 & 0xff == PUSH_FP && is_move_to_fp(last >> 40) {
        return Some(Leaf::Pushed);
    }
    if !code.has_taken_frame() {
        return Some(Leaf::Frameless);
    }
    // `mov [rsp + ...], rbp`
    if matches!(next as u32, 0x246c_8948 | 0x24ac_8948) {
        return Some(Leaf::Unsaved);
    }
    Some(Leaf::Complete)
}

/// A stub that the runtime calls to read possibly unmapped memory: `mov esi, [rdi]` or `mov rsi, [rdi]`,
/// `mov rax, rsi`, `ret`.
#[inline(always)]
fn is_safe_fetch(code: u64) -> bool {
    const REST: u64 = 0xc3c6_8b48;
    code & 0xffff_ffff == REST
        || code & 0xffff_ffff_ffff == REST << 16 | 0x378b
        || code & 0xff_ffff_ffff_ffff == REST << 24 | 0x37_8b48
}

/// `mov rbp, rsp`
#[inline(always)]
fn is_move_to_fp(code: u64) -> bool {
    matches!(code & 0xff_ffff, 0xec_8b48 | 0xe5_8948)
}

/// `add rsp, ...`, `pop rbp`
#[inline(always)]
fn is_leaving(code: u64) -> bool {
    match code & 0xff_ffff {
        0xc4_8348 => code >> 32 & 0xff == POP_FP,
        0xc4_8148 => code >> 56 == POP_FP,
        _ => false,
    }
}

struct Code<'a, M>(&'a M);

impl<M: BlockMemory> Code<'_, M> {
    /// Eight bytes of code.
    #[inline(always)]
    fn eight(&self, at: u32) -> u64 {
        let low = self.0.block_word(at >> 3);
        let high = self.0.block_word((at >> 3) + 1);
        let shift = (at & 7) << 3;
        // In two steps, since a shift by 64 is undefined.
        low >> shift | high << 1 << (63 - shift)
    }

    /// Whether at most a safepoint poll precedes the return.
    #[inline(always)]
    fn is_epilogue(&self, at: u32) -> bool {
        let next = self.eight(at);
        if next & 0xff == RET || is_last_of_poll(next) {
            return true;
        }
        // The first instruction of a poll.
        let length = match next as u32 & 0xff_ffff {
            // `cmp rsp, [r15 + ...]`, or with swapped operands.
            0xa7_3b49 | 0xa7_3949 => 7,
            0x67_3b49 | 0x67_3949 => 4,
            // `mov r10, [r15 + ...]`
            0x97_8b4d => 7,
            0x57_8b4d => 4,
            _ => return false,
        };
        is_last_of_poll(self.eight(at + length))
    }

    /// Whether `sub rsp, ...` is in the code before the instruction.
    #[inline(always)]
    fn has_taken_frame(&self) -> bool {
        for at in 0..BEFORE - 3 {
            let bytes = self.eight(at) & 0xff_ffff;
            let length = match bytes {
                0xec_8148 => 7,
                0xec_8348 => 4,
                _ => continue,
            };
            if at + length <= BEFORE {
                return true;
            }
        }
        false
    }
}

/// Whether this is the last instruction of a poll, followed by the return.
#[inline(always)]
fn is_last_of_poll(code: u64) -> bool {
    // `test [r10], eax`
    if code as u32 == 0xc302_8541 {
        return true;
    }
    // `ja ...`; `test [rip + ...], eax`
    matches!(code & 0xffff, 0x870f | 0x0585) && code >> 48 & 0xff == RET
}
