//! What differs between the machines whose stacks are walked. All of them are compiled natively too:
//! the walk on one is tested on the other.

/// Who was interrupted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    Kernel,
    User,
    /// A program of the older, narrower instruction set.
    User32,
}

/// Where the kernel keeps the registers that a walk needs.
#[derive(Clone, Copy, Debug)]
pub struct Places<T> {
    pub ip: T,
    pub sp: T,
    pub fp: T,
    pub link: T,
}

pub trait Architecture {
    /// Words of the kernel's `pt_regs` that are read.
    const WORDS: usize;
    /// Places in `pt_regs`, in words.
    const INTERRUPTED: Places<usize>;
    /// The word of `pt_regs` that [`mode`](Self::mode) reads.
    const MODE: usize;
    /// The word of `pt_regs` whose lower half is the number of the system call, -1 outside of one.
    const SYSTEM_CALL: usize;
    /// How far below the end of a thread's stack in the kernel its `pt_regs` may begin, in bytes. It
    /// depends on how the kernel was built.
    const BELOW_STACK_END: &[u64];
    /// Places in what a signal's handler finds at the stack pointer when it has returned, in bytes.
    const SIGNAL_FRAME: Places<u64>;
    /// A call leaves the return address on the stack, and not in the link register. What a function
    /// saves of its caller is then the end of its frame.
    const CALLS_PUSH: bool;

    fn mode(word: u64) -> Mode;

    /// Whether the thread is inside a system call, by its `pt_regs`; `before` reads the instruction of
    /// four bytes before the instruction pointer.
    fn is_in_system_call(registers: &[u64], before: impl FnOnce() -> u32) -> bool;

    /// Whether code of which nothing else is known has no frame yet, or not any more. `code` is what
    /// stands at the instruction pointer.
    fn is_frameless(code: u64) -> bool;
    /// Whether it saved the frame pointer and the return address as the last words of the stack, and
    /// is about to set the frame pointer.
    fn has_saved(code: u64) -> bool;
    /// Whether it moved the stack pointer, and is about to save the return address.
    fn is_about_to_save(code: u64) -> bool;

    /// The address in a word that a return address was found in; `address_bits` are those that an
    /// address may have.
    fn return_address(word: u64, address_bits: u64) -> u64;
}

pub enum X86_64 {}

impl X86_64 {
    /// Where the instruction `syscall` keeps the address behind it.
    const CX: usize = 11;
    const IP: usize = 16;
    /// The code segments of user code: the lowest two bits are set, and the rest tells 64 from 32 bits.
    const USER: u64 = 3;
    const USER_32: u64 = 0x23;

    /// With these begin and end functions that keep a frame pointer: `push rbp`, also behind an
    /// `endbr64`, `mov rbp, rsp` in either encoding, and `ret`.
    pub const PUSH_FP: [u8; 1] = [0x55];
    pub const MARKED_PUSH_FP: [u8; 5] = [0xf3, 0x0f, 0x1e, 0xfa, 0x55];
    pub const SET_FP: [u8; 3] = [0x48, 0x89, 0xe5];
    pub const SET_FP_OTHERWISE: [u8; 3] = [0x48, 0x8b, 0xec];
    pub const RETURN: [u8; 1] = [0xc3];

    #[inline(always)]
    fn begins_with(code: u64, instruction: &[u8]) -> bool {
        let mut bytes = [0; 8];
        bytes[..instruction.len()].copy_from_slice(instruction);
        let unused = 64 - 8 * instruction.len() as u32;
        code << unused == u64::from_le_bytes(bytes) << unused
    }
}

impl Architecture for X86_64 {
    const WORDS: usize = 21;
    /// In the place of a link register: vfork keeps its return address in `rdi`.
    const INTERRUPTED: Places<usize> = Places {
        ip: Self::IP,
        sp: 19,
        fp: 4,
        link: 14,
    };
    const MODE: usize = 17;
    const SYSTEM_CALL: usize = 15;
    const BELOW_STACK_END: &[u64] = &[168, 168 + 16, 168 + 8];
    /// A `ucontext`: flags, link and stack, then the registers.
    const SIGNAL_FRAME: Places<u64> = Places {
        ip: 40 + 16 * 8,
        sp: 40 + 15 * 8,
        fp: 40 + 10 * 8,
        link: 40 + 8 * 8,
    };
    const CALLS_PUSH: bool = true;

    #[inline(always)]
    fn mode(code_segment: u64) -> Mode {
        if code_segment & Self::USER != Self::USER {
            Mode::Kernel
        } else if code_segment & 0xffff == Self::USER_32 {
            Mode::User32
        } else {
            Mode::User
        }
    }

    #[inline(always)]
    fn is_in_system_call(registers: &[u64], _: impl FnOnce() -> u32) -> bool {
        registers[Self::CX] == registers[Self::IP]
    }

    #[inline(always)]
    fn is_frameless(code: u64) -> bool {
        Self::begins_with(code, &Self::PUSH_FP)
            || Self::begins_with(code, &Self::MARKED_PUSH_FP)
            || Self::begins_with(code, &Self::RETURN)
    }

    #[inline(always)]
    fn has_saved(code: u64) -> bool {
        Self::begins_with(code, &Self::SET_FP) || Self::begins_with(code, &Self::SET_FP_OTHERWISE)
    }

    #[inline(always)]
    fn is_about_to_save(_: u64) -> bool {
        false
    }

    #[inline(always)]
    fn return_address(word: u64, _: u64) -> u64 {
        word
    }
}

pub enum Aarch64 {}

impl Aarch64 {
    /// Of the processor's state: the exception level and its stack, and whether the code is 32 bits.
    const LEVEL: u64 = 0xf;
    const NARROW: u64 = 0x10;
    /// `svc #0`
    const CALL_SYSTEM: u32 = 0xd400_0001;

    /// With these begin and end functions that keep a frame pointer: a landing pad, the return
    /// address signed and checked by either key, and `ret`, which may check too. Between them stands
    /// `mov x29, sp`.
    const EDGES: [u32; 8] = [
        0xd503_245f,
        0xd503_233f,
        0xd503_237f,
        0xd503_23bf,
        0xd503_23ff,
        0xd65f_03c0,
        0xd65f_0bff,
        0xd65f_0fff,
    ];
    const SET_FP: u32 = 0x9100_03fd;
    /// `stp x29, x30, [sp, #n]!` and `stp x29, x30, [sp, #n]`: what is under the mask.
    const PUSH: u32 = 0xa980_7bfd;
    const SAVE: u32 = 0xa900_7bfd;
    const SAVE_MASK: u32 = 0xffc0_7fff;
}

impl Architecture for Aarch64 {
    const WORDS: usize = 36;
    const INTERRUPTED: Places<usize> = Places {
        ip: 32,
        sp: 31,
        fp: 29,
        link: 30,
    };
    const MODE: usize = 33;
    const SYSTEM_CALL: usize = 35;
    const BELOW_STACK_END: &[u64] = &[336, 320, 304, 352];
    /// A `siginfo` of 128 bytes and a `ucontext`, in which the registers follow 176 bytes of flags,
    /// stack and mask, and the address of the fault.
    const SIGNAL_FRAME: Places<u64> = Places {
        ip: 312 + 32 * 8,
        sp: 312 + 31 * 8,
        fp: 312 + 29 * 8,
        link: 312 + 30 * 8,
    };
    const CALLS_PUSH: bool = false;

    #[inline(always)]
    fn mode(state: u64) -> Mode {
        if state & Self::LEVEL != 0 {
            Mode::Kernel
        } else if state & Self::NARROW != 0 {
            Mode::User32
        } else {
            Mode::User
        }
    }

    #[inline(always)]
    fn is_in_system_call(registers: &[u64], before: impl FnOnce() -> u32) -> bool {
        // Interrupts that wait for the kernel to be entered come before it notes the number.
        registers[Self::SYSTEM_CALL] as i32 >= 0 || before() == Self::CALL_SYSTEM
    }

    #[inline(always)]
    fn is_frameless(code: u64) -> bool {
        let instruction = code as u32;
        Self::EDGES.contains(&instruction) || instruction & Self::SAVE_MASK == Self::PUSH
    }

    #[inline(always)]
    fn has_saved(code: u64) -> bool {
        code as u32 == Self::SET_FP
    }

    #[inline(always)]
    fn is_about_to_save(code: u64) -> bool {
        code as u32 & Self::SAVE_MASK == Self::SAVE
    }

    /// The bits above an address may sign it.
    #[inline(always)]
    fn return_address(word: u64, address_bits: u64) -> u64 {
        word & address_bits
    }
}
