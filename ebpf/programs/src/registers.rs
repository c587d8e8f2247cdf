//! The user's registers at a sample.

use profcol_ebpf_common::reason::EndReason;
use profcol_ebpf_common::settings::Settings;
use profcol_ebpf_common::walk::Registers;

use crate::kernel;
use crate::scratch::WINDOW;

/// Where x86-64's `pt_regs` has what a walk needs, in words.
const BP: usize = 4;
/// Where the instruction `syscall` keeps the address behind it.
const CX: usize = 11;
const DI: usize = 14;
/// The system call by which the thread came into the kernel.
const ORIGINAL_AX: usize = 15;
const IP: usize = 16;
const CS: usize = 17;
const SP: usize = 19;
const WORDS: usize = 21;
const _: () = assert!(WORDS <= WINDOW);

/// The code segments of user code: the lowest two bits are set, and the rest tells 64 from 32 bits.
const USER: u64 = 3;
const USER_32: u64 = 0x23;

/// Whether user code was interrupted, and not the kernel.
#[inline(always)]
pub fn is_user(context: *const u64) -> bool {
    // SAFETY: as below.
    unsafe { context.add(CS).read_volatile() & USER == USER }
}

/// Where a thread of a process stands.
pub struct Stand {
    pub registers: Registers,
    /// Whether the instruction there is the next one. In a system call what is next may belong to
    /// another function: some calls do not return.
    pub exact: bool,
}

/// `context` is a perf event's, which begins with the registers of what was interrupted; `space` is
/// for use here.
#[inline(always)]
pub fn of_user(
    context: *const u64,
    settings: &Settings,
    task: u64,
    space: &mut [u64; WINDOW],
) -> Result<Stand, EndReason> {
    // SAFETY: the verifier knows the context's size; it may be read a word at a time.
    let (cs, interrupted) = unsafe {
        let interrupted = Registers {
            ip: context.add(IP).read_volatile(),
            sp: context.add(SP).read_volatile(),
            fp: context.add(BP).read_volatile(),
            link: context.add(DI).read_volatile(),
        };
        (context.add(CS).read_volatile(), interrupted)
    };
    if cs & USER == USER {
        return of_code_segment(cs, interrupted, true);
    }
    // The kernel keeps these registers at the top of the thread's stack in it.
    let stack = kernel::word(task + settings.layout.task_stack).unwrap_or(0);
    let at = stack + settings.registers_at;
    let saved = space;
    let is_read = kernel::read(at, saved.as_mut_ptr().cast::<[u64; WORDS]>());
    if settings.registers_at == 0 || !is_read || saved[CS] & USER != USER {
        return Err(EndReason::NoRegisters);
    }
    of_code_segment(
        saved[CS],
        Registers {
            ip: saved[IP],
            sp: saved[SP],
            fp: saved[BP],
            link: saved[DI],
        },
        saved[CX] != saved[IP],
    )
}

#[inline(always)]
fn of_code_segment(cs: u64, registers: Registers, exact: bool) -> Result<Stand, EndReason> {
    if cs & 0xffff == USER_32 {
        return Err(EndReason::Bits32);
    }
    Ok(Stand { registers, exact })
}

/// The system call that the thread is in, if its user's registers are so far above the lowest address
/// of its stack; with that the loader finds out where they are.
#[inline(always)]
pub fn system_call(settings: &Settings, task: u64, registers_at: u64) -> Option<u64> {
    let stack = kernel::word(task + settings.layout.task_stack)?;
    let word = |place: usize| kernel::word(stack + registers_at + place as u64 * 8);
    (word(CS)? & USER == USER).then_some(word(ORIGINAL_AX)?)
}
