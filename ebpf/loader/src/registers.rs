//! Where a thread that is in the kernel has the registers of its user.
//!
//! They are at the top of its stack in the kernel, whose size and edge depend on how the kernel was
//! built. A helper tells since Linux 5.15; what is found here holds on any: this thread is in the
//! system call `bpf` while the program runs that looks.

use profcol_ebpf_common::architecture::Architecture;

use crate::identify::Identifier;
use crate::objects::Machine;

/// Stacks are larger in kernels with the address sanitizer, and in those with pages of 64 KiB.
const STACKS: [u64; 3] = [16 << 10, 32 << 10, 64 << 10];

/// None where they are found at no place that is known; stacks of threads in the kernel then have no
/// user part.
pub fn find(identifier: &mut Identifier) -> Option<u64> {
    let path_resolver = STACKS.into_iter().flat_map(|stack| {
        Machine::PT_REGS_BELOW_STACK_END
            .iter()
            .map(move |below| stack - below)
    });
    for place in path_resolver {
        match identifier.current_syscall(place) {
            Ok(call) if call == u64::try_from(libc::SYS_bpf).ok() => return Some(place),
            Ok(_) => {}
            Err(error) => {
                tracing::warn!(%error, "Failed to detect the offset of the user registers.");
                return None;
            }
        }
    }
    tracing::warn!(
        "Unknown offset of the user registers in kernel stacks: \
         samples taken in the kernel have no user stack."
    );
    None
}
