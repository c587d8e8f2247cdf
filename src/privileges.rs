//! Of root's power the process keeps what its configuration uses.
//!
//! Profiles, answers of backends and executables come from anywhere and are read here. A mistake in that must not cost the
//! host more than profcol itself may do: it cannot load modules, mount, open raw sockets or become another user, and no program
//! that it might be made to start may do more than it does.
//!
//! Capabilities belong to threads, and a thread begins with those of the one that starts it. This is done while there
//! is one.

use profcol_component::Capabilities;
use rustix::io::Errno;
use rustix::process::{Resource, Rlimit, setrlimit};
use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, capability_is_in_bounding_set,
    remove_capability_from_bounding_set, set_capabilities, set_no_new_privs,
};

/// Where the kernel or a container's runtime does not know these, CAP_SYS_ADMIN stands for them.
const IN_SYS_ADMIN: [Capabilities; 3] = [
    Capabilities::BPF,
    Capabilities::PERFMON,
    Capabilities::CHECKPOINT_RESTORE,
];

/// Gives up for ever what is not `needed`. Where the kernel refuses that, profcol runs as it was started.
pub fn keep(needed: Capabilities) {
    match reduce(needed) {
        Ok(Reduced { kept, given_up: 0 }) => {
            tracing::debug!(%kept, "No capabilities to drop.");
        }
        Ok(Reduced { kept, given_up }) => {
            tracing::info!(%kept, given_up, "Dropped unused capabilities.");
        }
        Err(error) => {
            tracing::warn!(error = %std::io::Error::from(error), "Failed to drop capabilities.");
        }
    }
}

struct Reduced {
    kept: Capabilities,
    given_up: u32,
}

fn reduce(needed: Capabilities) -> Result<Reduced, Errno> {
    let held = capabilities(None)?;
    let kept = held.permitted & set(with_stand_in(needed, held.permitted));
    if kept.contains(CapabilitySet::BPF) && held.effective.contains(CapabilitySet::SYS_RESOURCE) {
        lift_locked_memory();
    }
    if held.effective.contains(CapabilitySet::SETPCAP) {
        bound_to(kept)?;
    }
    let reduced = CapabilitySets {
        effective: held.effective & kept,
        permitted: kept,
        // The ambient set goes with it.
        inheritable: CapabilitySet::empty(),
    };
    if reduced != held {
        set_capabilities(None, reduced)?;
    }
    set_no_new_privs(true)?;
    Ok(Reduced {
        kept: Capabilities::from_bits(kept.bits()),
        given_up: (held.permitted - kept).bits().count_ones(),
    })
}

fn set(capabilities: Capabilities) -> CapabilitySet {
    CapabilitySet::from_bits_retain(capabilities.bits())
}

fn with_stand_in(needed: Capabilities, permitted: CapabilitySet) -> Capabilities {
    let is_missing = |one: &Capabilities| needed.contains(*one) && !permitted.contains(set(*one));
    match IN_SYS_ADMIN.iter().any(is_missing) {
        true => needed | Capabilities::SYS_ADMIN,
        false => needed,
    }
}

/// No program that this process starts may have more than `kept`.
fn bound_to(kept: CapabilitySet) -> Result<(), Errno> {
    for number in 0..u64::BITS {
        let one = CapabilitySet::from_bits_retain(1 << number);
        match capability_is_in_bounding_set(one) {
            Ok(true) if !kept.contains(one) => remove_capability_from_bounding_set(one)?,
            Ok(_) => {}
            // The kernel knows no more.
            Err(_) => break,
        }
    }
    Ok(())
}

/// Before Linux 5.11 BPF's memory counts as locked memory, whose bound cannot be lifted any more once `CAP_SYS_RESOURCE` is
/// gone; the buffers of perf events do on any kernel.
fn lift_locked_memory() {
    let unbounded = Rlimit {
        current: None,
        maximum: None,
    };
    // The code that needs that memory reports the failure.
    let _ = setrlimit(Resource::Memlock, unbounded);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sys_admin_is_kept_where_it_stands_for_others() {
        let needed = Capabilities::BPF | Capabilities::PERFMON;
        let check = |permitted: Capabilities, expected: bool| {
            let kept = with_stand_in(needed, set(permitted));
            assert_eq!(
                kept.contains(Capabilities::SYS_ADMIN),
                expected,
                "{permitted}"
            );
        };
        check(needed | Capabilities::SYS_ADMIN, false);
        check(Capabilities::BPF | Capabilities::SYS_ADMIN, true);
        let none = with_stand_in(Capabilities::NONE, CapabilitySet::empty());
        assert!(none.is_empty());
    }
}
