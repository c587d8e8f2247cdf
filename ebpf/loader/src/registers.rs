//! Detects the offset of the user registers in kernel stacks.
//!
//! They are at the top of the stack, at an offset that depends on the kernel's configuration. Linux 5.15
//! has a helper for it; this works on any kernel: the thread that runs the `identify` program is in the
//! system call `bpf`.

use profcol_ebpf_common::architecture::Architecture;

use crate::identify::Identifier;
use crate::objects::Machine;

/// Kernel stack sizes; KASAN and 64 KiB pages make stacks larger.
const STACKS: [u64; 3] = [16 << 10, 32 << 10, 64 << 10];

/// None if they are at no known offset; samples taken in the kernel then have no user stack.
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
