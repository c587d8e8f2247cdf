//! Architecture-specific parts of the unwinder. All architectures are compiled natively, so that each
//! is tested on any host.

/// The mode of the CPU at the sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    Kernel,
    User,
    /// A 32-bit program.
    User32,
}

/// Offsets of the registers that unwinding needs.
#[derive(Clone, Copy, Debug)]
pub struct RegisterOffsets<T> {
    pub ip: T,
    pub sp: T,
    pub fp: T,
    pub link: T,
}

pub trait Architecture {
    /// Words of `pt_regs` to read.
    const PT_REGS_WORDS: usize;
    /// Offsets in `pt_regs`, in words.
    const PT_REGS: RegisterOffsets<usize>;
    /// Words of `pt_regs` with the registers in which HotSpot keeps its state, see
    /// [`hotspot::Walk`](crate::interpreter::hotspot::Walk).
    const PT_REGS_HOTSPOT: [usize; 3];
    /// Words of `pt_regs` with the registers in which PHP keeps its instruction and its frame, and LuaJIT the base
    /// of its frame and its instruction.
    const PT_REGS_LOOP: [usize; 4];
    /// The word of `pt_regs` that [`mode`](Self::mode) reads.
    const PT_REGS_MODE: usize;
    /// The word of `pt_regs` whose lower half is the system call number, -1 outside of system calls.
    const PT_REGS_SYSCALL: usize;
    /// Possible distances of `pt_regs` from the end of the kernel stack, in bytes, depending on the
    /// kernel's configuration.
    const PT_REGS_BELOW_STACK_END: &[u64];
    /// Offsets from the stack pointer in the signal trampoline, in bytes.
    const SIGNAL_FRAME: RegisterOffsets<u64>;
    /// Calls push the return address instead of setting a link register. The saved caller registers
    /// then end the frame.
    const CALLS_PUSH: bool;
    /// How far the thread pointer may be above the C library's descriptor of the thread, which `pthread_self` returns.
    const MAX_THREAD_DESCRIPTOR: u64;

    fn mode(word: u64) -> Mode;

    /// Whether the thread is inside a system call, by its `pt_regs`; `before` reads the four bytes
    /// before the instruction pointer.
    fn is_in_syscall(registers: &[u64], before: impl FnOnce() -> u32) -> bool;

    /// Whether the instruction is in a prologue before the frame is set up, or in an epilogue after
    /// it is torn down. `code` is the memory at the instruction pointer.
    fn is_frameless(code: u64) -> bool;
    /// Whether the frame pointer and the return address are on top of the stack, and the next
    /// instruction sets the frame pointer.
    fn has_pushed_fp(code: u64) -> bool;
    /// Whether the stack pointer was moved, and the next instruction saves the return address.
    fn is_about_to_save_pair(code: u64) -> bool;

    /// Strips pointer authentication from a return address; `address_bits` masks valid user addresses.
    fn return_address(word: u64, address_bits: u64) -> u64;

    /// Whether `pthread_self` of a thread with this thread pointer returns `descriptor`.
    #[inline(always)]
    fn is_thread(descriptor: u64, thread_pointer: u64) -> bool {
        thread_pointer.wrapping_sub(descriptor) <= Self::MAX_THREAD_DESCRIPTOR
    }
}

pub enum X86_64 {}

impl X86_64 {
    /// `syscall` saves the return address here.
    const CX: usize = 11;
    const IP: usize = 16;
    /// Requested privilege level of user code segments.
    const USER_RPL: u64 = 3;
    const USER32_CS: u64 = 0x23;

    /// Prologue and epilogue of functions with a frame pointer: `push rbp`, also after `endbr64`,
    /// `mov rbp, rsp` in either encoding, and `ret`.
    pub const PUSH_FP: [u8; 1] = [0x55];
    pub const ENDBR_PUSH_FP: [u8; 5] = [0xf3, 0x0f, 0x1e, 0xfa, 0x55];
    pub const SET_FP: [u8; 3] = [0x48, 0x89, 0xe5];
    pub const SET_FP_ALT: [u8; 3] = [0x48, 0x8b, 0xec];
    pub const RET: [u8; 1] = [0xc3];

    #[inline(always)]
    fn begins_with(code: u64, instruction: &[u8]) -> bool {
        let mut bytes = [0; 8];
        bytes[..instruction.len()].copy_from_slice(instruction);
        let unused = 64 - 8 * instruction.len() as u32;
        code << unused == u64::from_le_bytes(bytes) << unused
    }
}

impl Architecture for X86_64 {
    const PT_REGS_WORDS: usize = 21;
    /// `link` is `rdi`, where vfork keeps its return address.
    const PT_REGS: RegisterOffsets<usize> = RegisterOffsets {
        ip: Self::IP,
        sp: 19,
        fp: 4,
        link: 14,
    };
    const PT_REGS_HOTSPOT: [usize; 3] = [2, 5, 10];
    const PT_REGS_LOOP: [usize; 4] = [0, 1, 12, 5];
    const PT_REGS_MODE: usize = 17;
    const PT_REGS_SYSCALL: usize = 15;
    const PT_REGS_BELOW_STACK_END: &[u64] = &[168, 168 + 16, 168 + 8];
    /// A `ucontext`: flags, link and stack, then the registers.
    const SIGNAL_FRAME: RegisterOffsets<u64> = RegisterOffsets {
        ip: 40 + 16 * 8,
        sp: 40 + 15 * 8,
        fp: 40 + 10 * 8,
        link: 40 + 8 * 8,
    };
    const CALLS_PUSH: bool = true;
    const MAX_THREAD_DESCRIPTOR: u64 = 0;

    #[inline(always)]
    fn mode(code_segment: u64) -> Mode {
        if code_segment & Self::USER_RPL != Self::USER_RPL {
            Mode::Kernel
        } else if code_segment & 0xffff == Self::USER32_CS {
            Mode::User32
        } else {
            Mode::User
        }
    }

    #[inline(always)]
    fn is_in_syscall(registers: &[u64], _: impl FnOnce() -> u32) -> bool {
        registers[Self::CX] == registers[Self::IP]
    }

    #[inline(always)]
    fn is_frameless(code: u64) -> bool {
        Self::begins_with(code, &Self::PUSH_FP)
            || Self::begins_with(code, &Self::ENDBR_PUSH_FP)
            || Self::begins_with(code, &Self::RET)
    }

    #[inline(always)]
    fn has_pushed_fp(code: u64) -> bool {
        Self::begins_with(code, &Self::SET_FP) || Self::begins_with(code, &Self::SET_FP_ALT)
    }

    #[inline(always)]
    fn is_about_to_save_pair(_: u64) -> bool {
        false
    }

    #[inline(always)]
    fn return_address(word: u64, _: u64) -> u64 {
        word
    }
}

pub enum Aarch64 {}

impl Aarch64 {
    /// In `pstate`: the exception level, and whether the code is 32-bit.
    const PSR_EL_MASK: u64 = 0xf;
    const PSR_MODE32_BIT: u64 = 0x10;
    /// `svc #0`
    const SVC_0: u32 = 0xd400_0001;

    /// `bti c`, `paciasp`, `pacibsp`, `autiasp`, `autibsp`, `ret`, `retaa` and `retab`.
    const PROLOGUE_OR_EPILOGUE: [u32; 8] = [
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
    /// `stp x29, x30, [sp, #n]!` and `stp x29, x30, [sp, #n]`, masked.
    const STP_FP_LR_PRE_INDEX: u32 = 0xa980_7bfd;
    const STP_FP_LR: u32 = 0xa900_7bfd;
    const STP_MASK: u32 = 0xffc0_7fff;
}

impl Architecture for Aarch64 {
    const PT_REGS_WORDS: usize = 36;
    const PT_REGS: RegisterOffsets<usize> = RegisterOffsets {
        ip: 32,
        sp: 31,
        fp: 29,
        link: 30,
    };
    const PT_REGS_HOTSPOT: [usize; 3] = [22, 12, 0];
    const PT_REGS_LOOP: [usize; 4] = [28, 27, 19, 21];
    const PT_REGS_MODE: usize = 33;
    const PT_REGS_SYSCALL: usize = 35;
    const PT_REGS_BELOW_STACK_END: &[u64] = &[336, 320, 304, 352];
    /// A `siginfo` of 128 bytes and a `ucontext`, in which the registers follow 176 bytes of flags,
    /// stack and mask, and the address of the fault.
    const SIGNAL_FRAME: RegisterOffsets<u64> = RegisterOffsets {
        ip: 312 + 32 * 8,
        sp: 312 + 31 * 8,
        fp: 312 + 29 * 8,
        link: 312 + 30 * 8,
    };
    const CALLS_PUSH: bool = false;
    /// The descriptor ends at the thread pointer; it has 1,856 bytes in glibc 2.36. Those of other threads are at least
    /// a stack away.
    const MAX_THREAD_DESCRIPTOR: u64 = 4096;

    #[inline(always)]
    fn mode(state: u64) -> Mode {
        if state & Self::PSR_EL_MASK != 0 {
            Mode::Kernel
        } else if state & Self::PSR_MODE32_BIT != 0 {
            Mode::User32
        } else {
            Mode::User
        }
    }

    #[inline(always)]
    fn is_in_syscall(registers: &[u64], before: impl FnOnce() -> u32) -> bool {
        // An interrupt pending at kernel entry comes before the kernel saves the number.
        registers[Self::PT_REGS_SYSCALL] as i32 >= 0 || before() == Self::SVC_0
    }

    #[inline(always)]
    fn is_frameless(code: u64) -> bool {
        let instruction = code as u32;
        Self::PROLOGUE_OR_EPILOGUE.contains(&instruction)
            || instruction & Self::STP_MASK == Self::STP_FP_LR_PRE_INDEX
    }

    #[inline(always)]
    fn has_pushed_fp(code: u64) -> bool {
        code as u32 == Self::SET_FP
    }

    #[inline(always)]
    fn is_about_to_save_pair(code: u64) -> bool {
        code as u32 & Self::STP_MASK == Self::STP_FP_LR
    }

    /// Pointer authentication uses the upper bits.
    #[inline(always)]
    fn return_address(word: u64, address_bits: u64) -> u64 {
        word & address_bits
    }
}
