//! The user registers at a sample.

use aya_ebpf::helpers::generated::bpf_probe_read_user;
use profcol_ebpf_common::architecture::{Architecture, Mode, RegisterOffsets};
use profcol_ebpf_common::reason::EndReason;
use profcol_ebpf_common::settings::Settings;
use profcol_ebpf_common::walk::Registers;

use crate::scratch::MAX_WINDOW;
use crate::{Target, kernel};

const PT_REGS: RegisterOffsets<usize> = Target::PT_REGS;
const PT_REGS_WORDS: usize = Target::PT_REGS_WORDS;
const _: () = assert!(PT_REGS_WORDS < MAX_WINDOW);

/// Whether user code was interrupted.
#[inline(always)]
pub fn is_user(context: *const u64) -> bool {
    // SAFETY: as below.
    Target::mode(unsafe { context.add(Target::PT_REGS_MODE).read_volatile() }) != Mode::Kernel
}

/// The user registers of the current thread.
pub struct UserRegisters {
    pub registers: Registers,
    /// Whether `ip` is exact. In a system call the next instruction may belong to another function:
    /// some calls do not return.
    pub exact: bool,
}

/// `context` is that of a perf event, which starts with the interrupted registers; `space` is scratch
/// memory.
#[inline(always)]
pub fn user_registers(
    context: *const u64,
    settings: &Settings,
    task: u64,
    space: &mut [u64; MAX_WINDOW],
    hotspot: &mut [u64; 3],
    loops: &mut [u64; 4],
) -> Result<UserRegisters, EndReason> {
    // SAFETY: the verifier checks accesses to the context, which may be read by words.
    let (mode, interrupted) = unsafe {
        let interrupted = Registers {
            ip: context.add(PT_REGS.ip).read_volatile(),
            sp: context.add(PT_REGS.sp).read_volatile(),
            fp: context.add(PT_REGS.fp).read_volatile(),
            link: context.add(PT_REGS.link).read_volatile(),
        };
        (
            context.add(Target::PT_REGS_MODE).read_volatile(),
            interrupted,
        )
    };
    let mode = Target::mode(mode);
    if mode != Mode::Kernel {
        for (register, place) in hotspot.iter_mut().zip(Target::PT_REGS_HOTSPOT) {
            // SAFETY: as above.
            *register = unsafe { context.add(place).read_volatile() };
        }
        for (register, place) in loops.iter_mut().zip(Target::PT_REGS_LOOP) {
            // SAFETY: as above.
            *register = unsafe { context.add(place).read_volatile() };
        }
        return for_mode(mode, interrupted, true);
    }
    // The user registers are at the top of the kernel stack.
    let stack = kernel::word(task + settings.layout.task_stack).unwrap_or(0);
    let at = stack + settings.user_regs_offset;
    let (saved, others) = space.split_at_mut(PT_REGS_WORDS);
    let is_read = kernel::read(at, saved.as_mut_ptr().cast::<[u64; PT_REGS_WORDS]>());
    if settings.user_regs_offset == 0 || !is_read {
        return Err(EndReason::NoRegisters);
    }
    // Before the other registers are read, to keep the BPF stack small.
    let ip = saved[PT_REGS.ip];
    let is_in_syscall = Target::is_in_syscall(saved, || {
        let word = &mut others[0];
        *word = 0;
        let before = ip.wrapping_sub(4);
        // SAFETY: the helper checks the address. Unreadable memory reads as 0, no valid instruction.
        unsafe { bpf_probe_read_user((&raw mut *word).cast(), 4, before as *const _) };
        *word as u32
    });
    for (register, place) in hotspot.iter_mut().zip(Target::PT_REGS_HOTSPOT) {
        *register = saved[place];
    }
    for (register, place) in loops.iter_mut().zip(Target::PT_REGS_LOOP) {
        *register = saved[place];
    }
    let registers = Registers {
        ip: saved[PT_REGS.ip],
        sp: saved[PT_REGS.sp],
        fp: saved[PT_REGS.fp],
        link: saved[PT_REGS.link],
    };
    for_mode(
        Target::mode(saved[Target::PT_REGS_MODE]),
        registers,
        !is_in_syscall,
    )
}

#[inline(always)]
fn for_mode(mode: Mode, registers: Registers, exact: bool) -> Result<UserRegisters, EndReason> {
    match mode {
        Mode::User => Ok(UserRegisters { registers, exact }),
        Mode::User32 => Err(EndReason::Bits32),
        Mode::Kernel => Err(EndReason::NoRegisters),
    }
}

/// The number of the current system call, if the user registers are at this offset of the kernel stack;
/// the loader detects the offset with it.
#[inline(always)]
pub fn current_syscall(settings: &Settings, task: u64, user_regs_offset: u64) -> Option<u64> {
    let stack = kernel::word(task + settings.layout.task_stack)?;
    let word = |place: usize| kernel::word(stack + user_regs_offset + place as u64 * 8);
    let mode = Target::mode(word(Target::PT_REGS_MODE)?);
    // Numbers have 32 bits; on aarch64 the upper half has other data.
    let number = word(Target::PT_REGS_SYSCALL)? & u64::from(u32::MAX);
    (mode == Mode::User).then_some(number)
}
