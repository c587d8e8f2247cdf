//! The user's registers at a sample.

use aya_ebpf::helpers::generated::bpf_probe_read_user;
use profcol_ebpf_common::architecture::{Architecture, Mode, Places};
use profcol_ebpf_common::reason::EndReason;
use profcol_ebpf_common::settings::Settings;
use profcol_ebpf_common::walk::Registers;

use crate::scratch::WINDOW;
use crate::{Target, kernel};

const PLACES: Places<usize> = Target::INTERRUPTED;
const WORDS: usize = Target::WORDS;
const _: () = assert!(WORDS < WINDOW);

/// Whether user code was interrupted, and not the kernel.
#[inline(always)]
pub fn is_user(context: *const u64) -> bool {
    // SAFETY: as below.
    Target::mode(unsafe { context.add(Target::MODE).read_volatile() }) != Mode::Kernel
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
    let (mode, interrupted) = unsafe {
        let interrupted = Registers {
            ip: context.add(PLACES.ip).read_volatile(),
            sp: context.add(PLACES.sp).read_volatile(),
            fp: context.add(PLACES.fp).read_volatile(),
            link: context.add(PLACES.link).read_volatile(),
        };
        (context.add(Target::MODE).read_volatile(), interrupted)
    };
    let mode = Target::mode(mode);
    if mode != Mode::Kernel {
        return of_mode(mode, interrupted, true);
    }
    // The kernel keeps these registers at the top of the thread's stack in it.
    let stack = kernel::word(task + settings.layout.task_stack).unwrap_or(0);
    let at = stack + settings.registers_at;
    let (saved, others) = space.split_at_mut(WORDS);
    let is_read = kernel::read(at, saved.as_mut_ptr().cast::<[u64; WORDS]>());
    if settings.registers_at == 0 || !is_read {
        return Err(EndReason::NoRegisters);
    }
    // Before the others are read, so that they need not be kept meanwhile: stacks are short.
    let ip = saved[PLACES.ip];
    let is_in_system_call = Target::is_in_system_call(saved, || {
        let word = &mut others[0];
        *word = 0;
        let before = ip.wrapping_sub(4);
        // SAFETY: the helper checks the address; the word is ours. What cannot be read is no instruction.
        unsafe { bpf_probe_read_user((&raw mut *word).cast(), 4, before as *const _) };
        *word as u32
    });
    let registers = Registers {
        ip: saved[PLACES.ip],
        sp: saved[PLACES.sp],
        fp: saved[PLACES.fp],
        link: saved[PLACES.link],
    };
    of_mode(
        Target::mode(saved[Target::MODE]),
        registers,
        !is_in_system_call,
    )
}

#[inline(always)]
fn of_mode(mode: Mode, registers: Registers, exact: bool) -> Result<Stand, EndReason> {
    match mode {
        Mode::User => Ok(Stand { registers, exact }),
        Mode::User32 => Err(EndReason::Bits32),
        Mode::Kernel => Err(EndReason::NoRegisters),
    }
}

/// The system call that the thread is in, if its user's registers are so far above the lowest address
/// of its stack; with that the loader finds out where they are.
#[inline(always)]
pub fn system_call(settings: &Settings, task: u64, registers_at: u64) -> Option<u64> {
    let stack = kernel::word(task + settings.layout.task_stack)?;
    let word = |place: usize| kernel::word(stack + registers_at + place as u64 * 8);
    let mode = Target::mode(word(Target::MODE)?);
    // Numbers have 32 bits; on aarch64 something else is in the others.
    let number = word(Target::SYSTEM_CALL)? & u64::from(u32::MAX);
    (mode == Mode::User).then_some(number)
}
